"""The answer of `planner measure`: benchmarks that teach the most about a deployment, within a time."""

from dataclasses import dataclass
from typing import Annotated

from planner.files.keys import Key
from planner.results.answers import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignRun:
    """One benchmark run of a campaign."""

    max_concurrency: Annotated[int, Key("1", "Requests in flight")]
    num_prompts: Annotated[int, Key("1", "Requests")]
    random_input_len: Annotated[int, Key("tokens", "Prompt length")]
    random_output_len: Annotated[int, Key("tokens", "Output length")]
    duration_s: Annotated[float, Key("s", "Predicted time, with the start of the client")]
    uncertainty_left: Annotated[float, Key("1", "Predicted standard deviation of TTFT and TPOT over all candidate "
                                           "loads after this run and those before it, as a share of the one before "
                                           "the campaign")]
    command: Annotated[str, Key("", "Command that runs it against the server on this machine, port 8000")]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MeasureAnswer(Answer):
    """The output of `planner measure --json`."""

    duration_s: Annotated[float, Key("s", "Predicted time of all runs")]
    limit_s: Annotated[float, Key("s", "Time after which the script starts no further run (--minutes)")]
    num_candidates: Annotated[int, Key("1", "Loads among which the runs were chosen")]
    runs: Annotated[tuple[CampaignRun, ...], Key("", "Benchmark runs, the most telling first")]
    launch: Annotated[str, Key("", "Command that starts the server. A note names the options that have no flag")]
    calibrate: Annotated[str, Key("", "Command that turns the results into constants")]
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each")]
