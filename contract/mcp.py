"""POST /mcp/mcp and POST /mcp/docs/mcp: JSON-RPC messages, and what each tool takes.

The protocol itself is the SDK's. The argument types here are also the schemas that `tools/list` shows.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, model_validator
from typing_extensions import TypedDict

from contract.base import Items, Strict
from contract.limits import DOCS_QUERY_CHARS, DOCS_RESULTS, MAX_MESSAGES
from contract.rerank import MAX_DOCUMENTS

DOCS_SHOWN = 5
"""Sections of the documentation, where a query does not say how many."""


class RpcMessage(TypedDict):
    """A JSON-RPC request, or a notification, which has no `id`."""

    jsonrpc: Literal["2.0"]
    id: NotRequired[int | str]
    method: str
    params: NotRequired[dict[str, Any] | None]


class RpcErrorObject(TypedDict):
    """What was wrong with the message. Errors of a tool are results with `isError`."""

    code: int
    message: str
    data: NotRequired[Any]


class RpcReply(TypedDict):
    """Exactly one of `result` and `error`; `id` is that of the request, null where it had none."""

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

    message: Annotated[str | None, Field(description="What to ask. Either this or `messages`.")] = None
    messages: Annotated[
        Annotated[list[ChatTurn], Items(MAX_MESSAGES)] | None,
        Field(description="The conversation so far, oldest turn first."),
    ] = None
    model: Annotated[str | None, Field(description="Id of a chat model; the first one without it.")] = None
    max_tokens: Annotated[int | None, Field(ge=1, description="Tokens that the answer may have.")] = None

    @model_validator(mode="after")
    def _asks_once(self) -> ChatArguments:
        if (self.message is None) == (self.messages is None):
            raise ValueError("give either `message` or `messages`")
        return self


class SearchArguments(Strict):
    """Documents to sort by how well they fit a query; without documents, the documentation is searched."""

    query: Annotated[str, Field(min_length=1, description="What to look for.")]
    documents: Annotated[
        Annotated[list[str], Items(MAX_DOCUMENTS)] | None,
        Field(description="Texts to sort; without them this server's documentation is searched."),
    ] = None
    model: Annotated[str | None, Field(description="Id of a model that sorts; the first one without it.")] = None
    top_n: Annotated[int | None, Field(ge=1, description="Only the best so many.")] = None


class PictureArguments(Strict):
    """What a picture or a film should show."""

    prompt: Annotated[str, Field(description="What it should show.")]


class SearchDocsArguments(Strict):
    """Words to look for in the documentation."""

    query: Annotated[
        str, Field(min_length=1, max_length=DOCS_QUERY_CHARS, description="A question, or words to look for.")
    ]
    top_n: Annotated[int, Field(ge=1, le=DOCS_RESULTS, description="How many sections to show.")] = DOCS_SHOWN


class ReadDocArguments(Strict):
    """A page of the documentation, or a section of one."""

    id: Annotated[str, Field(description="As `search_docs` shows it: `docs/api.md`, or `docs/api.md#errors`.")]
