"""The project's own accuracy, as bundled: each published figure with its target."""

from dataclasses import dataclass

from planner.catalog.catalog_files import data_dir
from planner.errors import CatalogError
from planner.files.nested import parse_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One figure of `reports/accuracy.md`.

    Parameters
    ----------
    section, name : where it stands, and what is measured.
    value : an error, or a share of verdicts that are right; None where it could not be measured [1].
    limit : the target; met where value <= limit, or >= where `at_least`; None for no target [1].
    peers : what others reach, as text.
    """

    section: str
    name: str
    value: float | None
    limit: float | None
    at_least: bool
    peers: str

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None without a target or a value."""
        if self.limit is None or self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def read_published() -> dict[str, list[Published]]:
    """Return the figures that `make accuracy` wrote, by section.

    Raises
    ------
    CatalogError : the file is missing, or is not as it was written.
    """
    path = data_dir("reports") / "accuracy.json"
    try:
        rows = [Published(**row) for row in parse_json(path.read_text(encoding="utf-8"))["verdicts"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CatalogError(f"{path}: cannot be read: {error!r}; reinstall planner") from error
    found: dict[str, list[Published]] = {}
    for row in rows:
        found.setdefault(row.section, []).append(row)
    return found
