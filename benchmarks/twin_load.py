"""How much later a client of the twin sees its tokens than the deployment sends them.

`python -m benchmarks.twin_load [--rate 60] [--requests 600] [--output 100]` starts
`planner serve` in a process of its own, sends streams at an even rate, and replays the requests that arrived. The delay
of a token is the client's time less the replay's: it has the client's own event loop and both sides of the connection.
"""

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import read_trace

DEPLOYMENT: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "max_num_seqs": 1024, "router": "round-robin"}
PROMPT = 200  # tokens


class Seen(NamedTuple):
    """One stream as its client saw it: the send time, and the delay of its first and its last token [s]."""

    sent_s: float
    ttft_s: float
    e2e_s: float


async def _stream(host: str, port: int, k: int, output: int, at_s: float) -> Seen:
    await asyncio.sleep(max(at_s - time.monotonic(), 0.0))
    reader, writer = await asyncio.open_connection(host, port)
    body = json.dumps({"prompt": [PROMPT * k + j for j in range(PROMPT)], "max_tokens": output, "ignore_eos": True,
                       "stream": True}).encode()
    sent_s = time.monotonic()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: twin\r\ncontent-type: application/json\r\n"
                 b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    first_s = last_s = float("nan")
    while part := await reader.read(1 << 16):
        if b" tok" in part:
            last_s = time.monotonic()
            first_s = last_s if first_s != first_s else first_s
    writer.close()
    return Seen(sent_s, first_s - sent_s, last_s - sent_s)


async def _streams(port: int, rate: float, num_requests: int, output: int) -> list[Seen]:
    begin_s = time.monotonic() + 0.2
    return await asyncio.gather(*(_stream("127.0.0.1", port, k, output, begin_s + k / rate)
                                  for k in range(num_requests)))


def measure(rate: float, num_requests: int, output: int, replicas: int, stream_interval: int) -> str:
    """Return a row of the table: load, medians and 99th percentiles of the delays [ms], streams at once, CPU."""
    options = DEPLOYMENT | {"data_parallel_size": replicas, "stream_interval": stream_interval}
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port, record = free.getsockname()[1], Path(folder) / "arrived.jsonl"
        free.close()
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        with subprocess.Popen([sys.executable, "-m", "planner.commands.cli", "serve", *words, "--port", str(port),
                               "--record", str(record)], stderr=subprocess.DEVNULL) as server:
            try:
                while not _is_open(port):
                    time.sleep(0.1)
                seen = asyncio.run(_streams(port, rate, num_requests, output))
                cpu_s = sum(psutil.Process(server.pid).cpu_times()[:2])
            finally:
                server.terminate()
        records = replay(read_trace(str(record)), Scenario(**options)).result
    order = np.argsort([each.sent_s for each in seen])
    late = {"first": np.array([seen[k].ttft_s for k in order]) - records.ttft_s,
            "last": np.array([seen[k].e2e_s for k in order]) - records.e2e_s}
    delays = " | ".join(f"{1e3 * np.median(each):.1f} / {1e3 * np.quantile(each, 0.99):.1f}" for each in late.values())
    at_once = max(sum(each.sent_s <= at.sent_s < each.sent_s + each.e2e_s for each in seen) for at in seen)
    return f"| {rate:g} | {output} | {stream_interval} | {replicas} | {at_once:,} | {delays} | {cpu_s:.1f} |"


def _is_open(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def main(words: Sequence[str]) -> None:
    """Print the row of a load."""
    parser = argparse.ArgumentParser()
    for name, value in (("rate", 60.0), ("requests", 600), ("output", 100), ("replicas", 1), ("stream-interval", 1)):
        parser.add_argument(f"--{name}", type=type(value), default=value)
    given = parser.parse_args(words)
    print("| streams/s | tokens | tokens a chunk | replicas | at once | first token [ms] | last token [ms] | CPU [s] |")
    print("|---|---|---|---|---|---|---|---|")
    print(measure(given.rate, given.requests, given.output, given.replicas, given.stream_interval))


if __name__ == "__main__":
    main(sys.argv[1:])
