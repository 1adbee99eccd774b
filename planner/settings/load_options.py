"""Options of the load: which requests are sent, and when."""

from dataclasses import dataclass

from planner.settings.panel import in_panel

option = in_panel("Load")
SCALING = ("Method of changing the request rate. thin: leave out users or add copies of users, like planner trace "
           "synth --grow. compress: shorten or lengthen the time between requests. resample: draw requests and gaps at "
           "random from the trace. poisson: draw Poisson arrivals. [replay: compress; capacity, size and share: thin]")
OF_SESSIONS = ("max_sessions", "session_start_fraction")
MEASURING = ("warmup_s", "measure_s", "recycle_sessions")  # which requests of a replay count
# Options that let requests wait for the end of others, and options that choose the requests that count.
CLOSED_LOOP = ("max_concurrency", "ready_at_start", "think_time", *OF_SESSIONS, *MEASURING)
SEARCHED = ("scaling", "trace_copies", "ready_at_start", "think_time")  # options whose values a search sets itself


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Which requests are sent, and when."""

    start_at: float = option(0.0, "Skip requests that arrive before this time [s].",
        label="skip the first part of the log", unit="s")
    duration: float | None = option(
        None, "Length of the part of the trace that is kept, from --start-at on [s].",
        label="length of the part that is kept", unit="s")
    limit: int | None = option(None, "Keep only the first N requests.",
        label="requests of the log, at most", unit="requests")
    rate_scale: float | None = option(
        None, "Factor on the trace's request rate, by the method of --scaling.", label="load", unit="× the log's rate")
    request_rate: float | None = option(
        None, "Mean request rate [1/s], by the method of --scaling. For TRACE random, and for a trace without arrival "
              "times, arrivals are Poisson. inf: all requests at once, except in planner size.",
        label="request rate", unit="requests/s")
    scaling: str | None = option(None, SCALING, label="method of changing the rate")
    trace_copies: int = option(
        1, "Replay the trace N times, one copy after the other. Each copy has prompts of its own, which the cache does "
           "not hold.", label="copies of the log, one after the other")
    wait_for_parents: bool = option(
        True, "Send a request only after its parents have finished, and a session's next turn only after the previous "
              "turn and the think time. Off: send all requests at their recorded times.",
        label="turns wait for earlier turns")
    max_concurrency: int | None = option(None, "Closed loop: maximum number of requests in flight. [no limit]",
        label="closed loop: requests in flight", unit="requests", least=1)
    max_sessions: int | None = option(
        None, "Closed loop of conversations: maximum number of sessions open at once, with their sub-agents. The next "
        "session starts when one has ended. [no limit]", label="closed loop: open sessions", unit="sessions")
    ready_at_start: bool = option(
        False, "Closed loop: all requests, or all sessions, are ready at time 0, and the limit alone decides when each "
               "begins, as in planner capacity --of. Needs --max-concurrency or --max-sessions.",
        label="closed loop: all users ready at the start")
    think_time: float | None = option(
        None, "Closed loop: pause of a user between an answer and the next request [s]. Needs --ready-at-start. "
              "[the trace's]", label="closed loop: pause of a user", unit="s")
    session_start_fraction: str | None = option(
        None, "LOW,HIGH: each session that is open at the start leaves out its first requests, a share drawn from this "
        "range. Needs --max-sessions. [0,0]", label="share of a session left out at the start", unit="low,high")
    warmup_s: float | None = option(
        None, "Warm-up: latencies, rates and attainment leave out the requests that are sent in the first N seconds of "
              "the replay. Caches stay warm. [0]", label="warm-up", unit="s")
    measure_s: float | None = option(
        None, "Length of the measurement: only requests that are sent in the N seconds after the warm-up count. "
              "[to the end]", label="length of the measurement", unit="s")
    recycle_sessions: bool = option(
        False, "Replay the sessions of the trace again and again until --measure-s is over. Each repetition has "
               "prompts of its own, which no cache holds. Needs --max-sessions and --measure-s.",
        label="repeat sessions")
    num_prompts: int | None = option(None, "TRACE random: number of requests. [1000]",
        label="random load: requests", unit="requests")
    num_warmups: int | None = option(
        None, "TRACE random: number of warm-up requests. They are not replayed, so this option changes no result. [0]",
        label="random load: warm-up requests", unit="requests")
    random_input_len: int | None = option(None, "TRACE random: prompt length [tokens]. [1024]",
        label="random load: prompt length", unit="tokens")
    random_output_len: int | None = option(None, "TRACE random: output length [tokens]. [128]",
        label="random load: output length", unit="tokens")
    random_range_ratio: float | None = option(
        None, "TRACE random: lengths are drawn from length · (1 ± ratio), with ratio in [0, 1). [0]",
        label="random load: range of lengths", unit="share")
    seed: int | None = option(
        None, "Random seed: TRACE random, routers, accepted drafts, retry pauses, --scaling. [0]", label="random seed")

    @property
    def is_closed_loop(self) -> bool:
        """Whether requests or sessions wait until others have ended."""
        return self.max_concurrency is not None or self.max_sessions is not None
