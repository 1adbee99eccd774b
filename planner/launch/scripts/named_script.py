"""A script beside a deployment file, which its command runs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from planner.engines import ENGINES
from planner.launch.beginnings import launched
from planner.launch.described import Described
from planner.launch.scripts.python_script import python_launches
from planner.launch.scripts.shell_script import script_launches

SUFFIXES = (".sh", ".bash", ".py")


def of_named_script(words: Sequence[str], folder: Path | None, variables: Mapping[str, str], place: str
                    ) -> Iterator[Described]:
    """Yield the engines that a script launches which a command runs; none if the folder does not have it.

    Parameters
    ----------
    folder : of the file that has the command; None reads no script.
    variables : of the environment.
    """
    named = [word for text in words for word in text.split() if word.endswith(SUFFIXES)]
    for path in [] if folder is None else [folder / PurePosixPath(name).name for name in named]:
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".py":
            yield from python_launches(text)
            continue
        for launch in script_launches(text, variables):
            known = ENGINES[launched(launch.words).engine].dialect.known_variables
            found = {**variables, **launch.variables}
            yield Described(words=launch.words, place=f"line {launch.line} of {path.name}, which {place} runs,",
                            files=launch.files, variables={key: found[key] for key in found if key in known})
