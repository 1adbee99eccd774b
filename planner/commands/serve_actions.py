"""The action of `planner serve`: the deployment is made, and its twin serves until the process is told to end."""

import sys
from collections.abc import Sequence
from pathlib import Path

from planner.commands.outputs import check_outputs
from planner.errors import PlannerError, UsageError
from planner.replays.fleet.failures import read_failures
from planner.settings.scenario import Scenario
from planner.twin.live_fleet import LiveFleet
from planner.twin.live_options import KILL
from planner.twin.server import ServeOptions, Twin, run_server


def serve(scenario: Scenario, host: str, port: int, models: Sequence[str], record: Path | None,
          tokenizer: Path | None, *, speed: float, slow: float, startup_delay_s: float,
          max_replicas: int | None, output_tokens: int, kill_replica: str, network_delay_ms: float) -> None:
    """Serve the twin of a deployment."""
    for name, value in (("--speed", speed), ("--slow", slow)):
        if not 0 < value < float("inf"):
            raise UsageError(f"{name} {value:g}: must be a number above 0")
    if record is not None and slow != 1.0:
        raise UsageError(f"--record {record} and --slow {slow:g}: a replay of the trace would have other times; leave "
                         f"one of them out")
    if not 0 <= network_delay_ms < float("inf"):
        raise UsageError(f"--network-delay {network_delay_ms:g}: must be a finite number of at least 0 [ms]")
    check_outputs({"--record": record})
    fleet = LiveFleet(scenario, failures=read_failures(kill_replica, KILL) if kill_replica else (),
                      max_replicas=max_replicas, startup_s=startup_delay_s)
    name = scenario.model or "model"
    twin = Twin(fleet, ServeOptions(models=tuple(models) or (name,), speed=speed, slow=slow, record=record,
                                    startup_delay_s=startup_delay_s, output_tokens=output_tokens, tokenizer=tokenizer,
                                    network_delay_s=network_delay_ms / 1e3))
    print(f"serving {name} at http://{host}:{port} (engine {scenario.engine}, speed {speed:g})", file=sys.stderr)
    try:
        run_server(twin, host, port)
    except SystemExit as error:  # uvicorn has said why on stderr
        raise PlannerError(f"http://{host}:{port}: cannot be served; give another --host or --port") from error
