"""MCP server on standard input and output: the only module that imports the library `mcp`."""

import asyncio
import os
import sys
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from dse.documents import build_schema
from dse.documents.records import record_schema
from dse.mcp_server import ALLOW_RUN, GUIDE, OPTIONS, TOOLS, McpTool, available_tools
from dse.mcp_server.process_pool import ToolProcesses
from dse.mcp_server.tool_calls import list_options
from dse.space.errors import DesignError, suggest_nearest
from dse.terminal.error_line import format_error_line
from dse.terminal.json_text import format_json
from dse.terminal.package_version import version
from dse.terminal.signals import exit_status


def serve_mcp(*, allow_run: bool) -> None:
    """Serve one client until its input ends.

    Args:
        allow_run: whether the tools that write are offered.
    """
    if sys.stdin.isatty():
        print("dse mcp: serves an assistant's client on standard input; Ctrl-C ends it", file=sys.stderr)
    try:
        asyncio.run(_serve_stdio(allow_run))
    except KeyboardInterrupt as error:
        sys.stderr.flush()
        os._exit(exit_status(error))  # a thread still waits for standard input, and nothing can wake it


async def _serve_stdio(allow_run: bool) -> None:
    processes = ToolProcesses()
    server = _make_server(processes, available_tools(allow_run=allow_run))
    try:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    finally:
        await processes.close()


def _make_server(processes: ToolProcesses, tools: dict[str, McpTool]) -> Server[Any]:
    async def choices() -> str:
        return format_json(await asyncio.to_thread(list_options))  # libraries are imported for it

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_declare_tool(name, tool) for name, tool in tools.items()])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        async def heard(done: int, total: int, note: str) -> None:
            await context.session.report_progress(done, total, note)

        if params.name not in TOOLS:
            raise MCPError(types.INVALID_PARAMS, f"no tool {params.name!r}; {suggest_nearest(params.name, tools)}")
        try:
            if params.name not in tools:
                raise DesignError(
                    f"{params.name}: needs write access, and this server only reads; start it with dse mcp {ALLOW_RUN}"
                )
            answer = await processes.answer(params.name, params.arguments or {}, heard)
        except DesignError as error:
            answer = {"refused": format_error_line(error)}
        more = [await choices()] if params.name == "list" and "document" in answer else []
        return _call_result(answer, more)

    async def list_resources(context: Any, params: Any) -> types.ListResourcesResult:
        about = "what overrides can choose: names by group, fidelities, and metrics with their definitions"
        resource = types.Resource(name="options", uri=OPTIONS, description=about, mime_type="application/json")
        return types.ListResourcesResult(resources=[resource])

    async def read_resource(context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        if str(params.uri) != OPTIONS:
            raise MCPError(types.INVALID_PARAMS, f"no resource {str(params.uri)!r}; there is {OPTIONS}")
        text = types.TextResourceContents(uri=OPTIONS, mime_type="application/json", text=await choices())
        return types.ReadResourceResult(contents=[text])

    return Server(
        "mesh-dse",
        version=version(),
        title="mesh-dse",
        instructions=GUIDE,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def _declare_tool(name: str, tool: McpTool) -> types.Tool:
    """A tool as clients are told of it. A run adds to what is stored; a second one like it finds all of it there."""
    hints = types.ToolAnnotations(
        title=tool.title,
        read_only_hint=not tool.writes,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=False,
    )
    return types.Tool(
        name=name,
        title=tool.title,
        description=tool.does,
        input_schema=record_schema(tool.takes),
        output_schema=build_schema(tool.document),
        annotations=hints,
    )


def _call_result(answer: dict[str, Any], more: list[str]) -> types.CallToolResult:
    """A document as structured content and as text, with more texts; or the line that refuses it."""
    if "refused" in answer:
        return types.CallToolResult(content=[types.TextContent(text=answer["refused"])], is_error=True)
    texts = [format_json(answer["document"]), *more]
    return types.CallToolResult(content=[types.TextContent(text=text) for text in texts], structured_content=answer["document"])
