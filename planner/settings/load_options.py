"""Options of the load: which requests are sent, and when."""

from dataclasses import dataclass

from planner.settings.panel import in_panel

option = in_panel("Load")


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Which requests are sent, and when."""

    start_at: float = option(0.0, "Skip requests that arrive before this time [s].")
    duration: float | None = option(
        None, "Length of the part of the trace that is kept, from --start-at on [s].")
    limit: int | None = option(None, "Keep only the first N requests.")
    rate_scale: float | None = option(
        None, "Factor on the trace's request rate. Time is compressed; `planner size` uses the method of --scaling "
              "instead.")
    request_rate: float | None = option(
        None, "Mean request rate [1/s]. Time is compressed or stretched; `planner size` uses the method of --scaling "
              "instead. For TRACE random, and for a trace without arrival times, arrivals are Poisson. inf: all "
              "requests at once.")
    wait_for_parents: bool = option(
        True, "Send a request only after its parents have finished, and a session's next turn only after the previous "
              "turn and the think time. Off: send all requests at their recorded times.")
    max_concurrency: int | None = option(None, "Closed loop: maximum number of requests in flight. [no limit]")
    num_prompts: int | None = option(None, "TRACE random: number of requests. [1000]")
    num_warmups: int | None = option(
        None, "TRACE random: number of warm-up requests. They are not replayed, so this option changes no result. [0]")
    random_input_len: int | None = option(None, "TRACE random: prompt length [tokens]. [1024]")
    random_output_len: int | None = option(None, "TRACE random: output length [tokens]. [128]")
    random_range_ratio: float | None = option(
        None, "TRACE random: lengths are drawn from length · (1 ± ratio), with ratio in [0, 1). [0]")
    seed: int | None = option(
        None, "Random seed: TRACE random, routers, accepted drafts, retry pauses, --scaling. [0]")
