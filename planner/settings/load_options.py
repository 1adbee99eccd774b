"""Options of the load: which requests are sent, and when."""

from dataclasses import dataclass

from planner.settings.panel import in_panel

option = in_panel("Load")
OF_SESSIONS = ("max_sessions", "session_start_fraction")
CLOSED_LOOP = ("max_concurrency", *OF_SESSIONS)  # options that let requests wait for the end of others


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Which requests are sent, and when."""

    start_at: float = option(0.0, "Skip requests that arrive before this time [s].")
    duration: float | None = option(
        None, "Keep only requests that arrive in this period from --start-at on [s].")
    limit: int | None = option(None, "Keep only the first N requests.")
    rate_scale: float | None = option(
        None, "Factor on the trace's request rate: time is compressed (`planner size`: by --scaling).")
    request_rate: float | None = option(
        None, "Mean request rate [1/s]: time is compressed or stretched (`planner size`: by --scaling). TRACE "
        "random, or a trace without arrival times: Poisson arrivals. inf: all requests at once.")
    wait_for_parents: bool = option(
        True, "Send a request after its parents, and a turn of a session after the turn before it plus think "
        "time. Off: send all requests at their recorded times.")
    max_concurrency: int | None = option(None, "Closed loop: maximum number of requests in flight. [no limit]")
    max_sessions: int | None = option(
        None, "Closed loop of conversations: maximum number of sessions open at once, with their sub-agents. The next "
        "session starts when one has ended. [no limit]")
    session_start_fraction: str | None = option(
        None, "LOW,HIGH: each session that is open at the start leaves out its first requests, a share drawn from this "
        "range. Needs --max-sessions. [0,0]")
    num_prompts: int | None = option(None, "TRACE random: number of requests. [1000]")
    num_warmups: int | None = option(
        None, "TRACE random: warm-up requests before the benchmark. They are not replayed. [0]")
    random_input_len: int | None = option(None, "TRACE random: prompt length [tokens]. [1024]")
    random_output_len: int | None = option(None, "TRACE random: output length [tokens]. [128]")
    random_range_ratio: float | None = option(
        None, "TRACE random: lengths are drawn from length · (1 ± ratio), with ratio in [0, 1). [0]")
    seed: int | None = option(
        None, "Random seed: TRACE random, routers, accepted drafts, retry pauses, --scaling. [0]")

    @property
    def is_closed_loop(self) -> bool:
        """Whether requests or sessions wait until others have ended."""
        return self.max_concurrency is not None or self.max_sessions is not None
