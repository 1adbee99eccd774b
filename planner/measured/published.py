"""The project's own accuracy, as bundled: each published figure with its target."""

import re
from dataclasses import dataclass

from planner.catalog.catalog_files import data_dir
from planner.errors import CatalogError
from planner.files.nested import parse_json

WORDS = {"median APE": "median error", "MAPE": "mean error", "in sample": "runs of the fit",
         "held out": "left out of the fit", "output_tput_per_gpu": "output tokens/s per GPU"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One figure of `reports/accuracy.md`.

    Parameters
    ----------
    section, name : its place, and the measured quantity.
    value : an error, or a share of verdicts that are right; None if it could not be measured [1].
    limit : the target; met if value <= limit, or >= if `at_least`; None for no target [1].
    peers : values of other tools, as text.
    """

    section: str
    name: str
    value: float | None
    limit: float | None
    at_least: bool
    peers: str

    @property
    def words(self) -> str:
        """The name as a page shows it: without abbreviations of errors and names of columns.

        >>> Published(section="", name="AMD, mean_ttft_ms: MAPE", value=None, limit=None, at_least=False,
        ...           peers="").words
        'AMD, mean TTFT: mean error'
        """
        text = re.sub(r"\b(\w+)_(ttft|tpot)_ms\b", lambda match: f"{match[1].replace('_', ' ')} {match[2].upper()}",
                      self.name)
        for code, words in WORDS.items():
            text = text.replace(code, words)
        return text

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
    tables: dict[str, list[Published]] = {}
    for row in rows:
        tables.setdefault(row.section, []).append(row)
    return tables
