"""The fuzz campaign: malformed inputs for every reader, which may raise our errors and nothing else.

python tests/fuzz/campaign.py --count 200000 --seed 1 [--target 'trace csv'] [--atheris]

Each input is a valid one with a few changes. What breaks is written to --found and printed: a traceback, a hang of more
than --limit seconds, or an output that is there although its command failed. With --atheris the changes are guided by
the coverage of the planner's own code.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutate import cut, mutated
from seeds import TARGETS, Target

from planner.errors import PlannerError

CLI_SHARE = 0.02  # of the inputs that go through the command line, with outputs to write


class HangError(Exception):
    """An input took longer than it may."""


def main() -> int:
    """Run the campaign, print what it came to; the exit code is 1 where something broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=10, help="seconds that one input may take")
    parser.add_argument("--target", choices=TARGETS, default=None)
    parser.add_argument("--found", type=Path, default=Path("out/fuzz"))
    parser.add_argument("--atheris", action="store_true")
    options = parser.parse_args()
    if options.atheris:
        return guided(options)
    targets = [options.target] if options.target else list(TARGETS)
    begin, ran = time.monotonic(), Counter[str]()
    broke: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        for k in range(options.count):
            if time.monotonic() - begin > options.seconds:
                break
            which = targets[k % len(targets)]
            rng = random.Random(f"{options.seed}/{k}")
            data = changed(TARGETS[which], rng)
            ran[which] += 1
            text = problem(TARGETS[which], data, Path(name), options.limit, through_cli=rng.random() < CLI_SHARE)
            if text is not None and (key := f"{which}: {text.splitlines()[-1]}") not in broke:
                broke[key] = text
                keep(options.found, which, data)
                print(f"{key}\n{text}", file=sys.stderr)
    print(f"{sum(ran.values()):,} inputs for {len(ran)} readers in {time.monotonic() - begin:,.0f} s: "
          f"{len(broke)} kinds of failures")
    return 1 if broke else 0


def changed(target: Target, rng: random.Random) -> bytes:
    """Return a malformed input of a kind."""
    return cut(target.seed, rng) if target.is_cut else mutated(target.seed, rng)


def problem(target: Target, data: bytes, folder: Path, limit_s: int, *, through_cli: bool = False) -> str | None:
    """Return what is wrong with how an input is taken; None where it is read, or refused by one of our errors."""
    path = folder / f"input{target.suffix}"
    path.write_bytes(data)
    call: Callable[[Path], Any] = _replay if through_cli and target.read.__name__ == "_trace" else target.read
    try:
        with _at_most(limit_s):
            call(path)
    except PlannerError as error:
        return None if str(error).strip() else "an error without a message"
    except BaseException as error:  # a panic of Polars is no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return "".join(traceback.format_exception(error))
    return None


def _replay(path: Path) -> None:
    """Replay a file by the command line, and see that a failure leaves no output behind."""
    from planner.commands.cli import app

    out = path.parent / "out"
    out.mkdir(exist_ok=True)
    command = ["replay", str(path), "--step-time", "linear:0.01,0.0001", "--num-gpu-blocks", "1000", "--limit", "5",
               "--requests", str(out / "requests.csv"), "--json", str(out / "summary.json")]
    try:
        app(command, standalone_mode=False)
        failed = False
    except PlannerError:
        failed = True
    left = [each.name for each in out.iterdir()]
    for each in out.iterdir():
        each.unlink()
    if failed and left:
        raise AssertionError(f"a failed command left {', '.join(left)}")


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise HangError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def keep(folder: Path, which: str, data: bytes) -> None:
    """Write an input that broke something, named after its target and content."""
    target = folder / which.replace(" ", "-")
    target.mkdir(parents=True, exist_ok=True)
    (target / f"{zlib.crc32(data):08x}").write_bytes(data)


def guided(options: argparse.Namespace) -> int:
    """Let atheris choose the changes by the planner's coverage; it ends the process at the first failure."""
    import atheris

    with atheris.instrument_imports(include=["planner.traces"]):
        for name in [name for name in sys.modules if name.startswith("planner.traces")]:
            del sys.modules[name]
        from planner.traces import read_trace

    names = [name for name, target in TARGETS.items() if name.startswith("trace ") and not target.is_cut]
    names = names if options.target is None else [options.target]
    folder = Path(tempfile.mkdtemp())
    corpus = folder / "corpus"
    corpus.mkdir()
    for name in names:
        (corpus / name.replace(" ", "-")).write_bytes(TARGETS[name].seed)

    def one(data: bytes) -> None:
        path = folder / "input"
        path.write_bytes(data)
        try:
            read_trace(str(path), on_bad_rows="drop" if len(data) % 2 else "error")
        except Exception as error:
            if not any(base.__name__ == "PlannerError" for base in type(error).__mro__):
                keep(options.found, "trace", data)
                raise

    arguments = [sys.argv[0], f"-runs={options.count}", f"-timeout={options.limit}", "-max_len=4000",
                 f"-seed={options.seed + 1}", str(corpus)]
    if options.seconds < float("inf"):
        arguments.insert(1, f"-max_total_time={int(options.seconds)}")
    atheris.Setup(arguments, one)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
