"""Commands for assistants and programs: schemas of answers, launch commands as options, and the server of tools."""

from pathlib import Path
from typing import Annotated

import typer

from planner.commands.trace_cli import JsonOption


def launch(
    command: Annotated[str, typer.Argument(metavar="COMMAND | FILE", help="Launch command of the engine in quotes, or "
                                           "a file, as of --from-command.")],
    model: Annotated[str | None, typer.Option(help="Model, in place of the command's.")] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU of the engine, if the command does not name it.")] = None,
    json: JsonOption = None,
) -> None:
    """Which options does this launch command stand for, and which of its flags are not modelled?

    Example: planner launch "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 256" --gpu h100-sxm
    """
    from planner.commands import assistant_actions

    assistant_actions.launch(command, model, gpu, json)


def schema(
    name: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]", help="Command whose JSON is described, as in "
                                                     r"'capacity' or 'trace describe'. \[all commands]")] = None,
) -> None:
    """Which keys does the JSON of a command have? Prints its JSON Schema (draft 2020-12).

    Example: planner schema capacity
    """
    from planner.commands import assistant_actions

    assistant_actions.schema(" ".join(name or []))


def mcp(
    folder: Annotated[list[Path], typer.Option(exists=True, file_okay=False, help="Folder with traces and other files. "
                                               "Tools read and write files below it only. The first is the working "
                                               "folder. Repeatable.")],
    http: Annotated[int | None, typer.Option(metavar="PORT", help="Serve streamable HTTP on this port of localhost. "
                                             r"\[stdin and stdout]")] = None,
    most_requests: Annotated[int, typer.Option(help="Largest number of requests of a trace.")] = 2_000_000,
    most_memory: Annotated[float, typer.Option(help="Largest memory of a call [GiB].")] = 4.0,
    most_seconds: Annotated[float, typer.Option(help=r"Longest time of a call \[s].")] = 600.0,
    most_calls: Annotated[int, typer.Option(min=1, help="Number of calls that run at once. Others wait.")] = 2,
) -> None:
    """How does an assistant ask the planner? Serves the commands as tools of the Model Context Protocol.

    Example: planner mcp --folder ~/traces
    """
    from planner.commands import assistant_actions

    assistant_actions.mcp(folder, http, {"most_requests": most_requests, "most_bytes": round(most_memory * 2**30),
                               "most_seconds": most_seconds, "most_calls": most_calls})
