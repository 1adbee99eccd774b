"""The actions of the commands for assistants and programs."""

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from json import dumps
from pathlib import Path

from planner.commands.actions import publish
from planner.errors import UnknownNameError, UsageError
from planner.launch import launch_options
from planner.launch.launch_answer import LaunchAnswer
from planner.planning.study import Study, command_line
from planner.report.answer_schemas import SCHEMAS, answer_schema
from planner.results.saved import to_json
from planner.settings.scenario import scenario_from


def launch(command: str, model: str | None, gpu: str | None, json: Path | None) -> None:
    """Print and write the options that a launch command stands for."""
    beside = {name: value for name, value in (("model", model), ("gpu", gpu)) if value is not None}
    options, notes = launch_options(command, model=model, beside=beside)
    study = Study(name="launch", trace="chat", format=None, scenario=scenario_from({**options, **beside}),
                  objectives=None)
    answer = LaunchAnswer(options={**options, **beside}, replay_command=command_line(study), notes=tuple(notes))
    publish(answer, "\n".join(f"{name} = {value}" for name, value in answer.options.items()), json, answer.notes)


def schema(command: str) -> None:
    """Print the schema of the JSON that a command writes, or of all commands by name."""
    if command and command not in SCHEMAS:
        raise UnknownNameError("command with JSON", command, SCHEMAS)
    sys.stdout.write(to_json(answer_schema(command) if command else {name: answer_schema(name) for name in SCHEMAS}))


def mcp(folders: Sequence[Path], port: int | None, bounds: Mapping[str, float]) -> None:
    """Serve tools until the client leaves, or until the server is stopped."""
    missing = [name for name in ("mcp", "psutil") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"planner mcp: needs {' and '.join(missing)}; pip install 'llm-serving-planner[mcp]'")
    settings = {"folders": [str(path.resolve()) for path in folders], "port": port, **bounds}
    os.execv(sys.executable, [sys.executable, "-P", "-m", "planner.assistant.mcp_server", dumps(settings)])
