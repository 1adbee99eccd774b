"""A script beside a deployment file, which its command runs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from planner.launch.described import Described
from planner.launch.scripts.python_script import python_launches
from planner.launch.scripts.shell_script import described, script_launches

SUFFIXES = (".sh", ".bash", ".py")


def of_named_script(words: Sequence[str], folder: Path | None, variables: Mapping[str, str], place: str,
                    texts: Mapping[str, str] | None = None) -> Iterator[Described]:
    """Yield the engines that a script launches which a command runs; none if the script is not known.

    Parameters
    ----------
    folder : of the file that has the command; None reads no script.
    variables : of the environment.
    texts : of scripts that the file itself has, by name.
    """
    named = [word for text in words for word in text.split() if word.endswith(SUFFIXES)]
    for name in (PurePosixPath(each).name for each in named):
        text = (texts or {}).get(name)
        if text is None and folder is not None and (folder / name).is_file():
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
        if text is None:
            continue
        if name.endswith(".py"):
            yield from python_launches(text, name)
            continue
        yield from (described(launch, f"line {launch.line} of {name}, which {place} runs,", variables)
                    for launch in script_launches(text, variables))
