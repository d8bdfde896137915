"""POST /rerank: body, job, protocol and reply.

    RerankRequest -> RerankJob -> RerankEngine -> Ranking -> reply()

Clients of the known rerank APIs understand the reply: `results` sorted by relevance, each with `index`,
`relevance_score` and, if requested, `document`; `usage` in tokens, `meta` in search units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Protocol

from pydantic import BeforeValidator, Field, SkipValidation
from typing_extensions import TypedDict

from contract.base import Lenient
from contract.catalog import RerankModel
from contract.catalog.base import likely_tokens, most_tokens, utf8_bytes

MAX_DOCUMENTS = 1000
"""Documents of one request."""

DOCUMENTS_PER_SEARCH_UNIT = 100


class Document(Lenient):
    """A document, in the form that some clients send."""

    text: str


def _documents(value: Any) -> tuple[str, ...]:
    """Returns `documents` as texts; each may be a string or an object with `text`. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError("it must be an array of strings")
    if not 1 <= len(value) <= MAX_DOCUMENTS:
        raise ValueError(f"{len(value)} documents were sent; 1 to {MAX_DOCUMENTS} are allowed")
    texts: list[Any] = [item.get("text") if isinstance(item, dict) else item for item in value]
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"item {index} is neither a string nor an object with a string `text`")
    return tuple(texts)


class RerankRequest(Lenient):
    """A body of POST /rerank. Unknown fields are ignored; without `model` the service chooses."""

    model: str | None = None
    query: str = Field(min_length=1)
    documents: Annotated[
        SkipValidation[tuple[str, ...]], BeforeValidator(_documents, json_schema_input_type=list[str | Document])
    ]
    top_n: int | None = Field(None, ge=1)
    return_documents: bool = False


@dataclass(frozen=True, slots=True)
class RerankJob:
    """Documents to score against a query, for `owner`; owners take turns."""

    query: str
    documents: tuple[str, ...]
    owner: str = ""

    def most_input_tokens(self, model: RerankModel) -> int:
        """Returns an upper bound of the tokens that are read: a reranker may read the query once with each document."""
        count = len(self.documents)
        read_bytes = utf8_bytes(self.documents) + utf8_bytes((self.query,)) * (count + 1)
        return min(most_tokens(read_bytes, 2 * count), 2 * model.context_window * count)

    def likely_input_tokens(self, model: RerankModel) -> int:
        query = likely_tokens([self.query])
        return sum(min(query + likely_tokens([document]), model.context_window) for document in self.documents)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Relevance of each document, in the order they were sent; higher is more relevant.

    `prompt_tokens` counts the query each time it was read.
    """

    scores: tuple[float, ...]
    prompt_tokens: int


class RerankEngine(Protocol):
    """A reranker: an adapter in `models`, or its replica. The gate calls its methods by name."""

    async def rerank(self, job: RerankJob) -> Ranking:
        """Returns one score per document, in order; higher is more relevant."""


class DocumentText(TypedDict):
    """A document of the request."""

    text: str


class RerankResult(TypedDict):
    """Place of a document in the request, and its relevance; `document` if requested."""

    index: int
    relevance_score: float
    document: NotRequired[DocumentText]


class RerankUsage(TypedDict):
    """Tokens that the model read."""

    prompt_tokens: int
    total_tokens: int


class BilledUnits(TypedDict):
    """One search unit for each 100 documents or part of 100."""

    search_units: int


class RerankMeta(TypedDict):
    """Units that clients of other rerank APIs read."""

    billed_units: BilledUnits


class RerankReply(TypedDict):
    """Results, most relevant first."""

    id: str
    object: Literal["rerank"]
    model: str
    results: list[RerankResult]
    usage: RerankUsage
    meta: RerankMeta


def reply(ranking: Ranking, request: RerankRequest, *, model: str, reply_id: str) -> RerankReply:
    """Returns the body of the answer: the `top_n` best results, best first, ties in the order of the documents."""
    order = sorted(range(len(ranking.scores)), key=lambda index: (-ranking.scores[index], index))
    results: list[RerankResult] = []
    for index in order[: request.top_n]:
        result: RerankResult = {"index": index, "relevance_score": ranking.scores[index]}
        if request.return_documents:
            result["document"] = {"text": request.documents[index]}
        results.append(result)
    return {
        "id": reply_id,
        "object": "rerank",
        "model": model,
        "results": results,
        "usage": {"prompt_tokens": ranking.prompt_tokens, "total_tokens": ranking.prompt_tokens},
        "meta": {"billed_units": {"search_units": search_units(len(request.documents))}},
    }


def search_units(documents: int) -> int:
    """Returns one search unit for each 100 documents or part of 100."""
    return -(-documents // DOCUMENTS_PER_SEARCH_UNIT)
