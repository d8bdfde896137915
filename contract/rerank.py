"""POST /rerank: what a body may say, and the reply. Spec 4.

The spec leaves the reply open. This one is understood by clients of the known rerank APIs: `results` sorted by
relevance, each with `index`, `relevance_score` and, when asked, `document`; `usage` in tokens, `meta` in search units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

MAX_DOCUMENTS = 1000
"""Documents of one request."""

DOCUMENTS_PER_SEARCH_UNIT = 100


class Document(BaseModel):
    """A document as some clients send it."""

    text: str


def _documents(value: Any) -> tuple[str, ...]:
    """`documents` as texts; each may be a string or an object with `text`. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError("an array of strings is expected")
    if not 1 <= len(value) <= MAX_DOCUMENTS:
        raise ValueError(f"{len(value)} documents were sent; 1 to {MAX_DOCUMENTS} are allowed")
    texts: list[Any] = [item.get("text") if isinstance(item, dict) else item for item in value]
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"item {index} is neither a string nor an object with a string `text`")
    return tuple(texts)


class RerankRequest(BaseModel):
    """A body of POST /rerank. Unknown fields are ignored; without `model` the service chooses."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    model: str | None = None
    query: str = Field(min_length=1)
    documents: Annotated[tuple[str, ...], BeforeValidator(_documents, json_schema_input_type=list[str | Document])]
    top_n: int | None = Field(None, ge=1)
    return_documents: bool = False


@dataclass(frozen=True, slots=True)
class Ranking:
    """Relevance of each document, in the order they were sent; higher is more relevant.

    Attributes:
        prompt_tokens: tokens that the model read, the query once for each time it was read.
    """

    scores: tuple[float, ...]
    prompt_tokens: int


def reply(ranking: Ranking, request: RerankRequest, *, model: str, reply_id: str) -> dict[str, Any]:
    """The body of the answer: the best `top_n` results, best first, equal scores in the order of the documents."""
    order = sorted(range(len(ranking.scores)), key=lambda index: (-ranking.scores[index], index))
    results: list[dict[str, Any]] = []
    for index in order[: request.top_n]:
        result: dict[str, Any] = {"index": index, "relevance_score": ranking.scores[index]}
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
    """One for each hundred documents that was begun."""
    return -(-documents // DOCUMENTS_PER_SEARCH_UNIT)
