"""The beginning of a launch among the words of a command line, its engine, and the release in an image's tag."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from planner.engines import ENGINES
from planner.engines.package import BENCHMARK
from planner.engines.releases import stated_release
from planner.errors import UsageError

# The words that a launch begins with; of the words before them (docker run) only variables and an image's tag are read.
BEGINNINGS = tuple((pattern, name) for name, engine in ENGINES.items() for pattern in engine.dialect.commands)
IMAGES = "|".join(image for engine in ENGINES.values() for image in engine.dialect.images)
# The release in its tag, behind the wheel of ROCm or TEI's kind of GPU.
IMAGE = re.compile(rf"(?:\S*/)?(?:{IMAGES}):(?:\S*_vllm_|(?:[a-z]+|\d+)-(?=\d+\.))?v?([^-@_\s]+)\S*")
PACKAGES = "|".join(engine.package.names for engine in ENGINES.values() if engine.package.names)
PINNED = re.compile(rf"(?:{PACKAGES})(?:\[[\w,]+\])?==(\d[\w.]*)")  # a package that is installed
IMAGE_NAME = re.compile(rf"(?:\S*/)?(?:{IMAGES})(?:[:@]\S+)?")
# Programs beside an engine that a first word names, and their kind.
ROUTERS = re.compile(r"sglang_router\.launch_router|dynamo\.frontend|trtllm-serve disaggregated")
NO_ENGINES = ((ROUTERS, "a router, not an engine"), *((re.compile(pattern), kind) for pattern, kind in (
    *(other for engine in ENGINES.values() for other in engine.package.others),
    (r"genai-perf|guidellm|aiperf", BENCHMARK),
    (r"dynamo\.mocker|vllm-sim|llm-d-inference-sim", "a simulator, not an engine"),
    (r"nvcr\.io/nim/\S+", "a container that chooses its engine's options itself; give the arguments of its log"),
    (r"llama-server|llama\.cpp|ollama|lmdeploy|text-generation-(?:inference|launcher)|mlx_lm\.server|tritonserver|"
     r"mistralrs\S*|tabbyapi|koboldcpp|aphrodite|max serve|deepspeed|infinity_emb", "an engine that is not modelled"))))
# Programs that run a command which they have in one word.
RUNNERS = ("ssh", "tmux", "screen", "pdsh", "clush", "watch", "script", "parallel-ssh")
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*=")
QUOTED = r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\""""
WORD_OR_COMMENT = re.compile(rf"""(?P<word>(?:{QUOTED}|[^\s'"\\#])(?:{QUOTED}|[^\s'"\\])*)|#[^\n]*""", re.DOTALL)
OPENED = re.compile(r"\\.|\$\(|`(?:\\.|[^`\\])*`", re.DOTALL)  # a command's or a sum's text, up to its bracket or whole
PART = re.compile(rf"{QUOTED}|.", re.DOTALL)  # of a line
HELD = re.compile("\ue000(\\d+)\ue000")  # letters for private use: no command has them
ENDS = (";", "&", "&&", "|", "||", ">", ">>", "2>", "2>&1")
PYTHON = re.compile(r"(?:\S*/)?python[\d.]*")
DOCKER_SWITCH = re.compile(r"-[dPit]+|--(?:rm|detach|init|interactive|tty|privileged|publish-all|read-only|"
                           r"no-healthcheck|oom-kill-disable|quiet|disable-content-trust)")
SHELLS = ("sh", "bash", "ash", "dash", "zsh")
OF_A_SHELL = re.compile(r"-[a-z]*c")


@dataclass(frozen=True, slots=True)
class Beginning:
    """A launch among the words of a command line.

    Parameters
    ----------
    engine : that it launches.
    before : the words up to the arguments; arguments : the rest, up to the end of the command.
    """

    engine: str
    before: tuple[str, ...]
    arguments: tuple[str, ...]

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables that are set before the command, as a shell and docker's `-e` do."""
        pairs = (word.rstrip(";").partition("=") for word in self.before if VARIABLE.match(word))
        return {name: value for name, _, value in pairs}

    @property
    def release(self) -> str | None:
        """Return the release of the image that the command runs."""
        return next((release for word in self.before if (release := image_release(word))), None)


def shell_script_of(words: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """Return the script that a shell runs, and its arguments behind its name; None if the words are no shell's."""
    if not words or words[0].rpartition("/")[2] not in SHELLS:
        return None
    place = next((number for number, word in enumerate(words) if number and OF_A_SHELL.fullmatch(word)), None)
    rest = [] if place is None else words[place + 1:]
    rest = rest[1:] if rest[:1] == ["--"] else rest  # the end of the shell's options
    return (rest[0], rest[2:]) if rest else None


def image_release(image: str) -> str | None:
    """Return the release of an engine's image; None if the tag has none, as latest.

    >>> image_release("vllm/vllm-openai:v0.11.0-x86_64"), image_release("lmsysorg/sglang:latest")
    ('0.11.0', None)
    >>> image_release("rocm/vllm:rocm7.0.0_vllm_0.11.1_20251103"), image_release("lmcache/vllm-openai:v0.3.9")
    ('0.11.1', None)
    >>> image_release("ghcr.io/huggingface/text-embeddings-inference:89-1.8.2")
    '1.8.2'
    """
    match = IMAGE.fullmatch(image)
    return stated_release(match[1]) if match else None


def stated(constants: Iterable[Any]) -> dict[str, Any]:
    """Return the release that texts of a script name: of a package that is installed, or of an image."""
    for text in constants:
        if not isinstance(text, str):
            continue
        pinned = PINNED.search(text)
        if pinned is not None:
            release = stated_release(pinned[1])
        else:
            release = image_release(text) if IMAGE_NAME.fullmatch(text) else None
        if release is not None:
            return {"engine_version": release}
    return {}


def find_launch(words: Sequence[str]) -> Beginning | None:
    """Return the first launch among words; None if there is none. The text after `sh -c` is read as words, too."""
    words, first = _with_entrypoint(words)
    for start, word in enumerate(words):
        if start < first:
            continue
        command = _without_interpreter_options(words[start:])
        for length in (1, 2, 3, 4):
            said = " ".join(command[:length])
            for pattern, engine in BEGINNINGS:
                if (pattern.fullmatch(said) and not _goes_on(command, length)
                        and not ROUTERS.search(" ".join(command[:length + 1]))):
                    rest = command[length:]
                    end = next((place for place, each in enumerate(rest) if each in ENDS), len(rest))
                    begun = Beginning(engine, (*words[:start], *command[:length]), tuple(rest[:end]))
                    return _command_behind_image(begun) if length == 1 else begun
        if OF_A_SHELL.fullmatch(word) and start + 1 < len(words) and (
                inner := find_launch(split_words(words[start + 1]))):
            return Beginning(inner.engine, (*words[:start], *inner.before), inner.arguments)
    if any(word.rpartition("/")[2] in RUNNERS for word in words):
        return next((found for word in words if " " in word and (found := find_launch(split_words(word)))), None)
    return None


def launched(words: Sequence[str]) -> Beginning:
    """Return the first launch among words.

    Raises
    ------
    UsageError : there is none.
    """
    if (found := find_launch(words)) is not None:
        return found
    said = " ".join(words)
    other, is_what = next(((match[0], is_what) for pattern, is_what in NO_ENGINES if (match := pattern.search(said))),
                          (None, ""))
    problem = f"{other} is {is_what}" if other else "launches no engine that is known"
    *first, last = (" ".join(engine.dialect.command) for engine in ENGINES.values())
    raise UsageError(f"--from-command: {problem}; give the command that begins with {', '.join(first)} or {last}")


def split_words(command: str) -> list[str]:
    """Return the words of a command line, without comments.

    Raises
    ------
    UsageError : a quote is open.
    """
    try:
        return shell_words(command.replace("\\\n", " "))
    except ValueError as error:
        raise UsageError(f"--from-command: {error}; put quotes around the whole command") from error


def shell_words(line: str) -> list[str]:
    """Return the words of a line as a shell splits it; `$(a command)` is a part of one word, and is not run.

    >>> shell_words("serve --port $((8000 + i)) --host $(hostname -I | awk '{print $1}'):80 # the first")
    ['serve', '--port', '$((8000 + i))', '--host', "$(hostname -I | awk '{print $1}'):80"]

    Raises
    ------
    ValueError : a quote is open.
    """
    text, held, place = "", list[str](), 0
    for opened in OPENED.finditer(line):
        end = _end_of(line, opened)
        if opened.start() >= place and end is not None:
            text += f"{line[place:opened.start()]}\ue000{len(held)}\ue000"
            held.append(line[opened.start():end])
            place = end
    return [HELD.sub(lambda match: held[int(match[1])], word) for word in bare_words(text + line[place:])]


def _end_of(line: str, opened: re.Match[str]) -> int | None:
    """Return the end of a substitution that `OPENED` finds; None for another character, or if no bracket closes it."""
    if opened[0] != "$(":
        return opened.end() if opened[0].startswith("`") else None
    depth = 1
    for part in PART.finditer(line, opened.end()):
        depth += {"(": 1, ")": -1}.get(part[0], 0)
        if depth == 0:
            return part.end()
    return None


def bare_words(text: str) -> list[str]:
    """Return the words of a text without its comments; within a word `#` is a character, as in a shell.

    >>> bare_words("--api-key a#b --seed 1 # --seed 2")
    ['--api-key', 'a#b', '--seed', '1']

    Raises
    ------
    ValueError : a quote is open.
    """
    return shlex.split(WORD_OR_COMMENT.sub(lambda match: match["word"] or " ", text))


def _command_behind_image(begun: Beginning) -> Beginning:
    """Return the launch among the words after an image, as of `srun --container-image=IMAGE vllm serve MODEL`.

    Without one, the words after the image are the arguments of its own command.
    """
    inner = find_launch(begun.arguments) if IMAGE_NAME.fullmatch(begun.before[-1]) else None
    if inner is None or IMAGE_NAME.fullmatch(inner.before[-1]):
        return begun
    return Beginning(inner.engine, (*begun.before, *inner.before), inner.arguments)


def _goes_on(words: Sequence[str], length: int) -> bool:
    """Tell whether the next word still belongs to the beginning, as the serve of `trtllm-serve serve`."""
    said = " ".join(words[:length + 1])
    return len(words) > length and any(pattern.fullmatch(said) for pattern, _ in BEGINNINGS)


def _without_interpreter_options(words: Sequence[str]) -> Sequence[str]:
    """Return the words of a Python command without options before its module, as the -u of `python -u -m`."""
    if not PYTHON.fullmatch(words[0]):
        return words
    place = 1
    while place < len(words) and re.fullmatch(r"-[A-Za-ln-z][A-Za-z]*", words[place]):
        if words[place].endswith("m"):  # -um is -u -m
            return [words[0], "-m", *words[place + 1:]]
        place += 2 if words[place] in ("-W", "-X") else 1
    return [words[0], *words[place:]]


def _with_entrypoint(words: Sequence[str]) -> tuple[Sequence[str], int]:
    """Return the words of `docker run --entrypoint COMMAND IMAGE …` with the command behind its image, and its place.

    The image's own command does not run then. Other words stay as they are, and a launch may begin anywhere.
    """
    place = next((number for number, word in enumerate(words) if word.partition("=")[0] == "--entrypoint"), None)
    if place is None or not {"run", "create"} & {*words[:place]}:
        return words, 0
    _, is_joined, command = words[place].partition("=")
    after = place + 1
    if not is_joined and after < len(words):
        command, after = words[after], after + 1
    image = next((number for number in range(after, len(words)) if not words[number].startswith("-") and (
        number == after or not _takes_word(words[number - 1]))), None)
    if image is None:
        return words, 0
    return [*words[:place], *words[after:image + 1], *([command] if command else []), *words[image + 1:]], (
        place + image + 1 - after)


def _takes_word(option: str) -> bool:
    """Tell whether the word after one of docker's options is its value."""
    return option.startswith("-") and "=" not in option and not DOCKER_SWITCH.fullmatch(option)
