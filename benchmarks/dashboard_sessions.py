"""Memory of the dashboard's server with many open sessions: `python -m benchmarks.dashboard_sessions [200] [2]`.

Each session is a WebSocket as a browser opens it; it runs the page Replay of a sample and stays open. The sessions are
opened and closed in rounds: a server that grows from round to round keeps something of the sessions that ended.
"""

import asyncio
import os
import sys
import tempfile
import time

import psutil
import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.typing import Origin, Subprotocol

from benchmarks.dashboard_server import served

AT_ONCE = 8  # sessions that run their page at the same time
GONE_S = 150.0  # after which the server has forgotten closed sessions: Streamlit keeps them for two minutes
PAGE = "replay"


async def opened(url: str, query: str, turn: asyncio.Semaphore) -> tuple[websockets.ClientConnection, int]:
    """Open a session and wait for its page; return it with the number of messages that it was sent."""
    async with turn:
        socket = await websockets.connect(url.replace("http", "ws") + "/_stcore/stream", max_size=None,
                                          subprotocols=[Subprotocol("streamlit")], origin=Origin(url))
        ask = BackMsg()
        ask.rerun_script.query_string, ask.rerun_script.page_name = query, PAGE
        await socket.send(ask.SerializeToString())
        for count in range(1, 100_000):
            message = ForwardMsg.FromString(await socket.recv())
            if message.WhichOneof("type") == "script_finished" and message.script_finished in (
                    ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_EARLY_FOR_RERUN):
                return socket, count
    raise RuntimeError("the page did not end")


async def _round(url: str, pid: int, sessions: int) -> tuple[float, float, int]:
    """Open sessions, close them, and return the server's memory with them and after them [MiB], and the messages."""
    turn = asyncio.Semaphore(AT_ONCE)
    found = await asyncio.gather(*(opened(url, f"limit=300&max_num_seqs={8 + k % 4}", turn) for k in range(sessions)))
    with_all = memory_mib(pid)
    await asyncio.gather(*(socket.close() for socket, _ in found))
    await asyncio.sleep(GONE_S)
    return with_all, memory_mib(pid), sum(count for _, count in found)


def memory_mib(pid: int) -> float:
    """Return the resident memory of the server without its workers [MiB]."""
    rss: int = psutil.Process(pid).memory_info().rss
    return rss / 2**20


def main(sessions: int, rounds: int) -> None:
    """Print the server's memory round by round."""
    with tempfile.TemporaryDirectory() as folder, served("--studies", f"{folder}/studies.sqlite") as (url, pid):
        asyncio.run(_round(url, pid, 1))
        print(f"one session was open: {memory_mib(pid):,.0f} MiB, {os.cpu_count()} cores")
        for number in range(1, rounds + 1):
            began_s = time.monotonic()
            with_all, after, messages = asyncio.run(_round(url, pid, sessions))
            print(f"round {number}: {sessions} sessions {with_all:,.0f} MiB, closed {after:,.0f} MiB, "
                  f"{messages:,} messages, {time.monotonic() - began_s - GONE_S:,.0f} s", flush=True)


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    main(*(*given, *(200, 2)[len(given):]))
