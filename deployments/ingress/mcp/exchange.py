"""A toolbox as a server of the MCP SDK; one message through it, and its reply.

The route has admitted the request and read its body. What is no JSON-RPC message, or of a revision that is not served,
is answered here; everything else by the SDK; its stateless transport is run for this one message and ends with it: if
the client leaves, so does the call.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, PARSE_ERROR, UNSUPPORTED_PROTOCOL_VERSION, JSONRPCResponse
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, KNOWN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from contract import VERSION
from contract.body import Hold, decode
from contract.errors import INVALID_JSON, ApiError
from contract.mcp import RpcMessage, RpcReply
from deployments.ingress.context import exchange_of
from deployments.ingress.mcp.tools import Toolbox, call

C = TypeVar("C")

SCOPE_KEY = "parlance.mcp"
"""Key of the `McpCall` in the ASGI scope of a message."""

REVISIONS = KNOWN_PROTOCOL_VERSIONS[-3:]
"""The current revision and the two before it. None of them has batches."""
LATEST_HANDSHAKE = HANDSHAKE_PROTOCOL_VERSIONS[-1]
"""The newest that begins with `initialize`."""
REVISION_HEADER = "mcp-protocol-version"

# Its warnings quote what clients send, and its notes are one for each request.
logging.getLogger("mcp").setLevel(logging.ERROR)

# Not the SDK's own types: they take a request with an `id` of another type for a notification, which gets no answer.
_message = TypeAdapter[Any](RpcMessage | JSONRPCResponse)


@dataclass(frozen=True, slots=True)
class McpCall(Generic[C]):
    """Parts of a request that its call gets.

    Attributes:
        wants_progress: whether the reply is a stream that can report the progress of the call.
    """

    context: C
    wants_progress: bool


@cache
def server(toolbox: Toolbox[Any]) -> Server[Any]:
    """The one server of this toolbox; it keeps nothing of any message."""
    listed = [
        types.Tool(
            name=tool.name,
            title=tool.title,
            description=tool.description,
            input_schema=tool.arguments.model_json_schema(),
            annotations=types.ToolAnnotations(read_only_hint=tool.is_read_only, open_world_hint=False),
        )
        for tool in toolbox.tools
    ]

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = next((tool for tool in toolbox.tools if tool.name == params.name), None)
        if tool is None:
            names = ", ".join(f"`{tool.name}`" for tool in toolbox.tools)
            raise MCPError(types.INVALID_PARAMS, f"there is no tool `{params.name[:100]}`; the tools are {names}")
        assert context.request is not None
        mcp_call: McpCall[Any] = context.request.scope[SCOPE_KEY]

        async def report(progress: float, message: str) -> None:
            await context.session.report_progress(progress, message=message)

        answer = await call(tool, params.arguments or {}, mcp_call.context, report if mcp_call.wants_progress else None)
        exchange_of(context.request.scope).fault = answer.fault
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=answer.text)],
            structured_content=answer.data,
            is_error=answer.fault is not None,
        )

    return Server(
        toolbox.name,
        version=VERSION,
        title=toolbox.title,
        instructions=toolbox.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def answer(
    request: Request, body: bytes, accepts_stream: bool, toolbox: Toolbox[C], context: C, hold: Hold
) -> Response:
    """The reply to `body`, a message to the tools of `toolbox`. Raises what `hold` does."""
    revision = request.headers.get(REVISION_HEADER)
    if revision is not None and revision not in REVISIONS:
        return _refusal(
            UNSUPPORTED_PROTOCOL_VERSION,
            f"protocol revision `{revision[:40]}` is not served here; there are {', '.join(REVISIONS)}",
            {"supported": list(REVISIONS), "requested": revision[:40]},
        )
    try:
        message = decode(body, hold=hold)
    except ApiError as error:
        if error.fault is not INVALID_JSON:
            raise
        return _refusal(PARSE_ERROR, error.message)
    if isinstance(message, list):
        return _refusal(INVALID_REQUEST, "the body is a batch; send each message on its own")
    try:
        _message.validate_python(message, strict=True)
    except ValidationError:
        return _refusal(
            INVALID_REQUEST, "the body is not a JSON-RPC 2.0 message: send an object with `jsonrpc`, `method`, `id`"
        )
    wants_progress = accepts_stream and _has_progress_token(message)
    headers = MutableHeaders(raw=list(request.headers.raw))
    headers["content-type"] = "application/json"
    headers["accept"] = "application/json, text/event-stream"
    # The revisions before these had no such header; the oldest that is served stands in for one that was left out.
    headers.setdefault(REVISION_HEADER, REVISIONS[0])
    return McpReply(toolbox, _negotiated(message) or body, headers, McpCall(context, wants_progress))


class McpReply(Response):
    """The reply of the SDK: JSON, or a stream if the client wants progress."""

    def __init__(self, toolbox: Toolbox[C], body: bytes, headers: MutableHeaders, mcp_call: McpCall[C]) -> None:
        super().__init__()
        self._server = server(toolbox)
        self._message = body
        self._sent_headers = headers.raw
        self._call = mcp_call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Replies. If the client leaves first, the call is cancelled and nothing is sent."""
        manager = StreamableHTTPSessionManager(
            self._server, stateless=True, json_response=not self._call.wants_progress
        )
        inner = {**scope, "headers": self._sent_headers, SCOPE_KEY: self._call}
        gone = anyio.Event()

        async def leave() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()
            calls.cancel_scope.cancel()

        async with manager.run(), anyio.create_task_group() as calls:
            calls.start_soon(leave)
            await manager.handle_request(inner, _once(self._message, gone), send)
            calls.cancel_scope.cancel()


def _once(body: bytes, gone: anyio.Event) -> Receive:
    """Gives `body`, and then waits for the client to leave."""
    inbox: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if inbox:
            return inbox.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    return receive


def _has_progress_token(message: dict[str, Any]) -> bool:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return message.get("method") == "tools/call" and isinstance(meta, dict) and meta.get("progressToken") is not None


def _negotiated(message: dict[str, Any]) -> bytes | None:
    """For an `initialize` that asks for a revision that is not served: the same, asking for one that is."""
    params = message.get("params")
    if message.get("method") != "initialize" or not isinstance(params, dict):
        return None
    if params.get("protocolVersion") in REVISIONS or not isinstance(params.get("protocolVersion"), str):
        return None
    return json.dumps(message | {"params": params | {"protocolVersion": LATEST_HANDSHAKE}}).encode()


def _refusal(code: int, text: str, data: Any = None) -> Response:
    reply: RpcReply = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}}
    if data is not None:
        reply["error"]["data"] = data
    return JSONResponse(reply, 400)
