"""A toolbox as a server of the MCP SDK."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from contract import VERSION
from deployments.ingress.mcp.tools import Tool, Toolbox, call

C = TypeVar("C")

SCOPE_KEY = "parlance.mcp"
"""Where the ASGI scope of a message has its `McpCall`."""


@dataclass(frozen=True, slots=True)
class McpCall(Generic[C]):
    """What a call gets of the request that brought it.

    Attributes:
        wants_progress: whether the reply is a stream that can tell how far the call has come.
    """

    context: C
    wants_progress: bool


@cache
def server(toolbox: Toolbox[Any]) -> Server[Any]:
    """The one server of this toolbox; it keeps nothing of any message."""
    listed = types.ListToolsResult(tools=[_described(tool) for tool in toolbox.tools])

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return listed

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = toolbox.find(params.name)
        if tool is None:
            names = ", ".join(f"`{tool.name}`" for tool in toolbox.tools)
            raise MCPError(types.INVALID_PARAMS, f"there is no tool `{params.name[:100]}`; the tools are {names}")
        assert context.request is not None
        mcp_call: McpCall[Any] = context.request.scope[SCOPE_KEY]

        async def report(progress: float, message: str) -> None:
            await context.session.report_progress(progress, message=message)

        answer = await call(tool, params.arguments or {}, mcp_call.context, report if mcp_call.wants_progress else None)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=answer.text)],
            structured_content=answer.data,
            is_error=answer.is_error,
        )

    return Server(
        toolbox.name,
        version=VERSION,
        title=toolbox.title,
        instructions=toolbox.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _described(tool: Tool[Any]) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.arguments.model_json_schema(),
        annotations=types.ToolAnnotations(read_only_hint=tool.is_read_only, open_world_hint=False),
    )
