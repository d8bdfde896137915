"""The tools of both MCP endpoints. They call the flows of the capabilities, so bills, limits and errors are the same.

    Toolbox[C]         an endpoint: its tools, each with a context C of the request
      `- McpTool[C]        arguments (contract.mcp), and what is done with them
           `- ToolAnswer   text for a model, the same as data, and whether it is an error

A tool needs the scope of the route that does the same, beside the scope `mcp` of the endpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from contract.access import Scope
from contract.body import validated
from contract.catalog import ChatModel
from contract.chat.engine import ChatReply
from contract.chat.request import ChatRequest
from contract.errors import INTERNAL_ERROR, NOT_FOUND, NOT_IMPLEMENTED, ApiError, Fault, without_text
from contract.mcp import (
    DOCS_SHOWN,
    ChatArguments,
    PictureArguments,
    ReadDocArguments,
    SearchArguments,
    SearchDocsArguments,
)
from contract.rerank import Ranking, RerankEngine, RerankJob, RerankRequest, reply
from contract.wires import contents
from deployments.ingress.context import RequestContext
from deployments.ingress.flows import chat as chat_flow
from deployments.ingress.flows.encoders import encode
from deployments.ingress.mcp.documentation import Documentation

log = logging.getLogger(f"parlance.{__name__}")

C = TypeVar("C")

Report = Callable[[float, str], Awaitable[None]]
"""Reports the progress of a call to the client, as a number that grows, and what is new since."""

DOCUMENTATION = Documentation()


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """Result of a call: text, and the same as data. `fault` says why it failed."""

    text: str
    data: dict[str, Any]
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class McpTool(Generic[C]):
    """A tool. `run` gets its arguments, the context of the request, and a Report if the client wants one.

    Attributes:
        is_read_only: whether a call changes nothing and costs nothing.
    """

    name: str
    title: str
    description: str
    arguments: type[BaseModel]
    run: Callable[[Any, C, Report | None], Awaitable[ToolAnswer]]
    is_read_only: bool = False


@dataclass(frozen=True, eq=False)
class Toolbox(Generic[C]):
    """The tools of an endpoint, and its description for a model."""

    name: str
    title: str
    instructions: str
    tools: tuple[McpTool[C], ...]


async def call(tool: McpTool[C], arguments: Mapping[str, Any], context: C, report: Report | None) -> ToolAnswer:
    """The answer of `tool`. What would be an error reply elsewhere is an answer that says so: nothing is raised."""
    try:
        return await tool.run(validated(tool.arguments, arguments), context, report)
    except ApiError as error:
        return _failed(error)
    except Exception as error:
        log.error("the tool %s failed with an internal error: %s", tool.name, without_text(error))
        return _failed(INTERNAL_ERROR())


def _failed(error: ApiError) -> ToolAnswer:
    body = error.body()
    text = f"{error.fault.code}: {error.message}"
    if error.retry_after_s is not None:
        body["error"]["retry_after_s"] = error.retry_after_s
        text += f" (try again in {error.retry_after_s} s)"
    return ToolAnswer(text, body, error.fault)


async def _chat(arguments: ChatArguments, context: RequestContext, report: Report | None) -> ToolAnswer:
    context.caller.require(Scope.CHAT)
    model = context.pick(context.service.catalog.chat, arguments.model)
    turns = [turn.model_dump() for turn in arguments.messages or ()]
    messages = turns if arguments.message is None else [{"role": "user", "content": arguments.message}]
    request = validated(ChatRequest, {"model": model.id, "messages": messages, "max_tokens": arguments.max_tokens})
    if report:
        return await _chat_in_pieces(model, request, context, report)

    def render(answer: ChatReply) -> ToolAnswer:
        choice = answer.body["choices"][0]
        text = choice["message"].get("content") or ""
        return _chat_answer(text, model, choice["finish_reason"], answer.prompt_tokens, answer.completion_tokens)

    return await chat_flow.complete(context, model, chat_flow.job_of(context, model, request), render)


async def _chat_in_pieces(
    model: ChatModel, request: ChatRequest, context: RequestContext, report: Report
) -> ToolAnswer:
    """The same as a stream: each piece is reported as it is made."""
    pieces: list[str] = []
    reason, read, written, reported = None, 0, 0, 0
    async with aclosing(chat_flow.stream(context, model, request)) as batches:
        async for batch in batches:
            read, written = batch.prompt_tokens, batch.completion_tokens
            new = ""
            for choice in (choice for event in contents(batch.events) for choice in event["choices"]):
                new += choice["delta"].get("content") or ""
                reason = choice.get("finish_reason") or reason
            pieces.append(new)
            if new and written > reported:
                reported = written
                await report(written, new)
    return _chat_answer("".join(pieces), model, reason, read, written)


def _chat_answer(text: str, model: ChatModel, reason: str | None, read: int, written: int) -> ToolAnswer:
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return ToolAnswer(text, {"text": text, "model": model.id, "finish_reason": reason, "usage": usage})


async def _search(arguments: SearchArguments, context: RequestContext, _: Report | None) -> ToolAnswer:
    if arguments.documents is None:
        count = DOCS_SHOWN if arguments.top_n is None else arguments.top_n
        return await _search_docs(
            validated(SearchDocsArguments, {"query": arguments.query, "top_n": count}), context, _
        )
    context.caller.require(Scope.RERANK)
    request = validated(RerankRequest, arguments.model_dump() | {"return_documents": True})
    model = context.pick(context.service.catalog.rerank, arguments.model)

    async def render(ranking: Ranking) -> ToolAnswer:
        body = reply(ranking, request, model=model.id, reply_id=context.exchange.request_id)
        lines = [f"{r['index']} ({r['relevance_score']:.3f}): {r['document']['text']}" for r in body["results"]]
        data = {"model": body["model"], "results": body["results"], "usage": body["usage"]}
        return ToolAnswer("\n".join(lines), data)

    job = RerankJob(request.query, request.documents)
    return await encode(context, model, job, RerankEngine.rerank, render)


async def _search_docs(arguments: SearchDocsArguments, _: object, __: Report | None) -> ToolAnswer:
    hits = await DOCUMENTATION.search(arguments.query, arguments.top_n)
    text = "\n\n".join(f"{hit.id}\n{hit.title}\n{hit.excerpt}" for hit in hits)
    results = [{"id": hit.id, "title": hit.title, "excerpt": hit.excerpt} for hit in hits]
    return ToolAnswer(text or "no page contains any of these words", {"results": results})


async def _read_doc(arguments: ReadDocArguments, _: object, __: Report | None) -> ToolAnswer:
    text = await DOCUMENTATION.read(arguments.id)
    if text is None:
        raise NOT_FOUND(f"there is no page `{arguments.id[:100]}`; find pages with `search_docs`", param="id")
    return ToolAnswer(text, {"id": arguments.id, "text": text})


def _planned(name: str, title: str, products: str) -> McpTool[RequestContext]:
    """A tool that is not there yet. Models know it from other servers; its words keep them from trying again."""
    truth = f"{products} are not implemented on this server"

    async def refuse(_: PictureArguments, __: RequestContext, ___: Report | None) -> ToolAnswer:
        raise NOT_IMPLEMENTED(
            f"{truth}, so nothing was made. Every call fails like this: do not call this tool again. Tell the user so, "
            "and describe in words what it should show, or write a prompt for another program"
        )

    return McpTool(name, title, f"Not implemented: {truth}. Do not call this tool.", PictureArguments, refuse)


ACCOUNT_TOOLS: Toolbox[RequestContext] = Toolbox(
    "parlance",
    "Parlance",
    "Language models and search of one server. Calls of `chat`, and of `search` with documents, are billed to the key.",
    (
        McpTool(
            "chat",
            "Ask a language model",
            "Answers a question or a conversation with a language model of this server.",
            ChatArguments,
            _chat,
        ),
        McpTool(
            "search",
            "Search",
            "Sorts documents by how well they fit a query. Without documents, searches this server's documentation.",
            SearchArguments,
            _search,
        ),
        _planned("image", "Make a picture", "pictures"),
        _planned("video", "Make a film", "films"),
    ),
)
"""POST /mcp/mcp."""

DOCS_TOOLS: Toolbox[None] = Toolbox(
    "parlance-docs",
    "Parlance documentation",
    "Search first; then read the sections that you need, by their ids.",
    (
        McpTool(
            "search_docs",
            "Search the documentation",
            "Finds sections of the documentation: API, operation, models, decisions behind the design, changes.",
            SearchDocsArguments,
            _search_docs,
            is_read_only=True,
        ),
        McpTool(
            "read_doc",
            "Read the documentation",
            "Returns a page, or a section of it, as Markdown.",
            ReadDocArguments,
            _read_doc,
            is_read_only=True,
        ),
    ),
)
"""POST /mcp/docs/mcp."""
