"""POST /mcp/mcp and POST /mcp/docs/mcp: JSON-RPC messages, and the arguments of each tool.

The SDK implements the protocol itself. The argument types here are also the schemas that `tools/list` shows.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, model_validator
from typing_extensions import TypedDict

from contract.base import Items, Strict
from contract.limits import DOCS_QUERY_CHARS, DOCS_RESULTS, MAX_MESSAGES
from contract.rerank import MAX_DOCUMENTS

DOCS_SHOWN = 5
"""Sections of the documentation in a result, if a query does not set `top_n`."""


# Annotated, because `typing` replaces `NotRequired[int | str]` by an earlier `NotRequired[str | int]` from its cache,
# and then the order in the OpenAPI document changes.
RpcId = Annotated[int | str, "of a request"]


class RpcMessage(TypedDict):
    """A JSON-RPC request, or a notification, which has no `id`."""

    jsonrpc: Literal["2.0"]
    id: NotRequired[RpcId]
    method: str
    params: NotRequired[dict[str, Any] | None]


class RpcErrorObject(TypedDict):
    """Error in a message. Errors of a tool are results with `isError`."""

    code: int
    message: str
    data: NotRequired[Any]


class RpcReply(TypedDict):
    """A reply with exactly one of `result` and `error`; `id` is that of the request, null if it had none."""

    jsonrpc: Literal["2.0"]
    id: int | str | None
    result: NotRequired[dict[str, Any]]
    error: NotRequired[RpcErrorObject]


class ChatTurn(Strict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class ChatArguments(Strict):
    """A question, or a conversation that ends with one."""

    message: Annotated[str | None, Field(description="The question. Send either this or `messages`.")] = None
    messages: Annotated[
        Annotated[list[ChatTurn], Items(MAX_MESSAGES)] | None,
        Field(description="The conversation so far, oldest message first."),
    ] = None
    model: Annotated[str | None, Field(description="Id of a chat model; by default the first one.")] = None
    max_tokens: Annotated[int | None, Field(ge=1, description="The answer has at most this many tokens.")] = None

    @model_validator(mode="after")
    def _asks_once(self) -> ChatArguments:
        if (self.message is None) == (self.messages is None):
            raise ValueError("send either `message` or `messages`")
        return self


class SearchArguments(Strict):
    """Query, and documents to sort by relevance; without documents, the documentation is searched."""

    query: Annotated[str, Field(min_length=1, description="The words or the question to search for.")]
    documents: Annotated[
        Annotated[list[str], Items(MAX_DOCUMENTS)] | None,
        Field(description="The texts to sort; without them, the tool searches this server's documentation."),
    ] = None
    model: Annotated[str | None, Field(description="Id of a reranking model; by default the first one.")] = None
    top_n: Annotated[int | None, Field(ge=1, description="Return only this many of the best texts.")] = None


class PictureArguments(Strict):
    """Description of a picture or a film."""

    prompt: Annotated[str, Field(description="A description of what it should show.")]


class SearchDocsArguments(Strict):
    """Words to look for in the documentation."""

    query: Annotated[
        str, Field(min_length=1, max_length=DOCS_QUERY_CHARS, description="A question, or words to search for.")
    ]
    top_n: Annotated[int, Field(ge=1, le=DOCS_RESULTS, description="How many sections to return.")] = DOCS_SHOWN


class ReadDocArguments(Strict):
    """A page of the documentation, or a section of one."""

    id: Annotated[str, Field(description="An id from `search_docs`, such as `docs/api.md` or `docs/api.md#errors`.")]
