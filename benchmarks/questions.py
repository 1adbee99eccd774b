"""Wall and CPU time of questions, in turns with another commit: `python -m benchmarks.questions [COMMIT]`.

Nothing is kept between the commands but the compiled loop and the modules' bytecode, which an installed package has.
Other work on the machine lengthens the times, so the load is printed. The other commit is checked out into a folder of
its own and runs with the same packages.
"""

import compileall
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEFORE = "ef90aaa8"  # the last commit at which a search replayed every load to its end
TURNS = 3
SERVER = ("--model", "llama-3.1-8b", "--slo", "ttft:500 tpot:50", "--quiet")
GPUS = ("--gpu", "h100-sxm,a100-80gb-sxm,l40s,h200")
QUICK = ("--replicates", "0", "--no-compare-assumptions")
QUESTIONS = {  # a command's words, and the wall time that is aimed at [s]
    "capacity of the chat hour": (("capacity", "chat", "--gpu", "h100-sxm", *SERVER, *QUICK), 3),
    "the same with confidence and scalings": (("capacity", "chat", "--gpu", "h100-sxm", *SERVER), 6),
    "size over four GPUs": (("size", "chat", *GPUS, *SERVER), 5),
    "the same at 60 requests/s": (("size", "chat", *GPUS, "--request-rate", "60", *SERVER), 10),
    "count of users": (("capacity", "chat", "--of", "concurrency", "--gpu", "h100-sxm", *SERVER, *QUICK), 4),
    "compare three policies": (("compare", "chat", "--gpu", "h100-sxm", *SERVER, "--policy",
                                "fcfs,chunked,prefill-first"), 2),
    "share of two models": (("share", "cluster.toml", "--quiet"), 10),
}
CLUSTER = """
[gpus]
h100-sxm = 4
l40s = 4

[deployment.chat]
trace = "chat"
limit = 3000
model = "llama-3.1-8b"
slo = "ttft:500 tpot:50"
attainment = 0.95
tensor_parallel_size = 1

[deployment.code]
trace = "code"
limit = 1000
model = "qwen3-8b"
slo = "ttft:2000 tpot:60"
attainment = 0.95
tensor_parallel_size = 1
"""


def asked(words: tuple[str, ...], tree: Path, folder: Path) -> tuple[float, float]:
    """Return the wall and the CPU time of a command of a tree, run in a folder [s, s]."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", "from planner.commands.cli import main; main()", *words], check=True,
                   capture_output=True, cwd=folder, env=os.environ | {"PYTHONPATH": str(tree), "PLANNER_ANSWERS": ""})
    after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - begin
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(commit: str = BEFORE) -> None:
    """Print a table of the questions."""
    with tempfile.TemporaryDirectory() as name:
        folder, other = Path(name), Path(name) / "other"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", other, commit], check=True)
        try:
            (folder / "cluster.toml").write_text(CLUSTER)
            for tree in (ROOT, other):
                compileall.compile_dir(tree / "planner", quiet=1)
            print(f"| question | target | wall | {commit} | CPU | {commit} |\n|---|---|---|---|---|---|")
            for question, (words, target_s) in QUESTIONS.items():
                turns = [[asked(words, tree, folder) for tree in (ROOT, other)] for _ in range(TURNS)]
                (wall_s, cpu_s), (other_wall_s, other_cpu_s) = (
                    [statistics.median(values) for values in zip(*tree, strict=True)]
                    for tree in zip(*turns, strict=True))
                print(f"| {question} | {target_s} s | {wall_s:.1f} s | {other_wall_s:.1f} s | {cpu_s:.1f} s | "
                      f"{other_cpu_s:.1f} s |", flush=True)
            print(f"\nLoad of the machine at the end: {os.getloadavg()[0]:.1f}.")
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", other], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:2])
