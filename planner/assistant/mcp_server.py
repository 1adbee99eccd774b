"""The Model Context Protocol server: tools, documents and both transports. `planner mcp` runs this file."""

import contextlib
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import uvicorn
from mcp import MCPError, types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

from planner.assistant.bounded_run import Bounds, Done, run
from planner.assistant.documents import DOCUMENTS
from planner.assistant.tools import TOOLS, command_line, description, input_schema, output_schema, words_of
from planner.commands.termination import EXIT_CODE, stops_on_sigterm
from planner.errors import PlannerError, UnknownNameError
from planner.versions import own_version

HOST = "127.0.0.1"
GRACE_S = 1  # for calls under way when the server ends [s]
MOST_WAITING = 32  # calls that wait for others
ERRORS = ("step_error", "covers_error", "confidence", "overall")  # keys of answers
SCHEME = "planner://"
INSTRUCTIONS = """Capacity planning for LLM serving. A trace is a file below the server's folders, or a bundled sample:
chat, code, long-context, agents, rag, batch. Read planner://skill first: it leads from a log to a fleet, and from a
launch command to a verdict. Pass on the notes of an answer, its command line and its errors on measured runs."""

Context: TypeAlias = ServerRequestContext[Any, Any]


def main() -> None:
    """Serve with the settings of the command line, as JSON."""
    settings = json.loads(sys.argv[1])
    port = settings.pop("port")
    bounds = Bounds(**settings | {"folders": [Path(folder) for folder in settings["folders"]]})
    server = server_of(bounds)
    if port is None:
        with stops_on_sigterm():
            anyio.run(_serve_stdio, server)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_CODE))  # which uvicorn raises again at its end
    uvicorn.run(server.streamable_http_app(host=HOST), host=HOST, port=port, log_level="warning",
                timeout_graceful_shutdown=GRACE_S)


async def _serve_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def server_of(bounds: Bounds) -> Server[Any]:
    """Return the server."""
    limiter = anyio.CapacityLimiter(bounds.most_calls)
    tools = [types.Tool(name=name, description=description(tool), input_schema=input_schema(tool),
                        output_schema=output_schema(tool),
                        annotations=types.ToolAnnotations(read_only_hint=not tool.is_writing, open_world_hint=False))
             for name, tool in TOOLS.items()]

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            if limiter.statistics().tasks_waiting >= MOST_WAITING:
                raise PlannerError(f"{MOST_WAITING} calls wait already; ask again later")
            async with limiter:
                return await _called(context, params.name, params.arguments or {}, bounds)
        except PlannerError as error:
            return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)

    async def list_resources(_: Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[
            types.Resource(uri=SCHEME + name, name=name, description=words, mime_type="text/markdown")
            for name, (_, words) in DOCUMENTS.items()])

    async def read_resource(_: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        name = str(params.uri).removeprefix(SCHEME)
        if name not in DOCUMENTS:
            raise MCPError(types.INVALID_PARAMS, str(UnknownNameError("document", name, DOCUMENTS)))
        return types.ReadResourceResult(contents=[
            types.TextResourceContents(uri=str(params.uri), mime_type="text/markdown", text=DOCUMENTS[name][0]())])

    return Server("planner", version=own_version(), instructions=INSTRUCTIONS, on_list_tools=list_tools,
                  on_call_tool=call_tool, on_list_resources=list_resources, on_read_resource=read_resource)


async def _called(context: Context, name: str, arguments: Mapping[str, Any], bounds: Bounds) -> types.CallToolResult:
    """Answer a call: the text that the command prints for a reader, and its JSON for a program."""
    if name not in TOOLS:
        raise UnknownNameError("tool", name, TOOLS)
    words = words_of(TOOLS[name], arguments, bounds.folders)
    num_told = 0

    async def tell(line: str) -> None:
        nonlocal num_told
        num_told += 1
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await context.session.report_progress(num_told, None, line)

    return _result(command_line(words), await run(words, bounds, tell))


def _result(command: str, done: Done) -> types.CallToolResult:
    answer = done.answer
    notes = list(dict.fromkeys([*(answer.get("notes", []) if isinstance(answer, dict) else []), *done.notes]))
    content = {"command": command, "exit_code": done.exit_code, "answer": answer, "notes": notes,
               "errors": _errors(answer)}
    text = "\n".join([f"$ {command}", done.text.rstrip(), *(f"note: {note}" for note in notes)])
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=content)


def _errors(answer: Any, path: str = "") -> dict[str, Any]:
    """Return the errors on measured runs that an answer has, by key: of step times, intervals, and a capacity's range.

    Parts that have a name, as the summaries of a comparison, stand before the key with a dot.
    """
    if isinstance(answer, list):
        parts = [(part, part.get("name") or part.get("deployment")) for part in answer if isinstance(part, dict)]
        return {key: value for part, name in parts if name for key, value in _errors(part, f"{path}{name}.").items()}
    if not isinstance(answer, dict):
        return {}
    errors = {f"{path}{key}": value for key, value in answer.items()
              if value is not None and (key in ERRORS or key.endswith("_interval"))}
    return errors | _errors(answer.get("fleet"), path) | _errors(answer.get("deployments"), path)


if __name__ == "__main__":
    main()
