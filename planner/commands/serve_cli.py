"""The command that serves the twin of a planned deployment."""

from pathlib import Path
from typing import Annotated

import typer

from planner.commands.options import takes_scenario
from planner.settings.scenario import Scenario
from planner.twin import NOT_LIVE


@takes_scenario(without=NOT_LIVE)
def serve(
    scenario: Scenario,
    host: Annotated[str, typer.Option(help="Address that is bound. Others than localhost let any host of the network "
                                      "in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port that is bound.")] = 8000,
    served_model_name: Annotated[list[str] | None, typer.Option(help="Name of the model in requests and metrics. "
                                                                r"Repeatable. \[the name in --model]")] = None,
    speed: Annotated[float, typer.Option(help="Seconds of the deployment in a second of the clock.")] = 1.0,
    slow: Annotated[float, typer.Option(help="Factor on all times of the server, for tests of alerts.")] = 1.0,
    startup_delay: Annotated[float, typer.Option(min=0.0, help=r"Time until the server is ready, and a replica that "
                                                 r"PUT /scale adds, on the deployment's clock \[s]. Before, the "
                                                 "server answers 503.")] = 0.0,
    max_replicas: Annotated[int | None, typer.Option(min=1, help="Replicas that PUT /scale may ask for. "
                                                     r"\[--data-parallel-size]")] = None,
    output_tokens: Annotated[int, typer.Option(min=1, help=r"Output of a request without ignore_eos \[tokens]. Its "
                                               "max_tokens may end it earlier.")] = 256,
    tokenizer: Annotated[Path | None, typer.Option(help="File tokenizer.json that counts tokens. Default: a token for "
                                                   "each 4 bytes of text.")] = None,
    kill_replica: Annotated[list[str] | None, typer.Option(help="Replicas that stop: "
                                                           r"REPLICA@SECONDS\[+DURATION]\[/HEALTH_CHECK]\[~NOTICE] on "
                                                           "the deployment's clock, as in 2@60,1@120+30. Repeatable. "
                                                           "Their requests in flight break off.")] = None,
    network_delay: Annotated[float, typer.Option(min=0.0, help=r"Network delay between client and server, each way "
                                                 r"\[ms]. The schedule does not include it.")] = 0.0,
    record: Annotated[Path | None, typer.Option(help="Write the requests that arrived, as a trace in JSONL.")] = None,
) -> None:
    """Does my gateway work with the planned deployment? Serves an OpenAI-compatible API that answers as it would.

    Tokens come at the times of a replay, under the engine's scheduler, prefix cache and limits. No GPU is used.

    Example: planner serve --model llama-3.1-8b --gpu h100-sxm --engine vllm --port 8000
    """
    from planner.commands import serve_actions

    serve_actions.serve(scenario, host, port, served_model_name or (), record, tokenizer, speed=speed, slow=slow,
                        startup_delay_s=startup_delay, max_replicas=max_replicas, output_tokens=output_tokens,
                        kill_replica=",".join(kill_replica or ()), network_delay_ms=network_delay)
