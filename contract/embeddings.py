"""POST /embeddings: what a body may say, what an embedder is asked, and the reply. Spec 4; the schema is OpenAI's.

EmbeddingsRequest -> EmbeddingsJob -> EmbeddingsEngine -> Embeddings -> reply()
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, Field
from pydantic_core import to_json
from typing_extensions import TypedDict

from contract.base import Lenient
from contract.catalog import EmbeddingModel
from contract.errors import INVALID_REQUEST
from contract.quantities import most_tokens, utf8_bytes

MAX_INPUTS = 2048
"""Texts of one request."""

FLOAT_BYTES = 4

EncodingFormat = Literal["float", "base64"]


def _texts(value: Any) -> tuple[str, ...]:
    """`input` as texts. Raises ValueError for token ids, for a wrong count, and for an empty text."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise ValueError("a string or an array of strings is expected")
    if not 1 <= len(texts) <= MAX_INPUTS:
        raise ValueError(f"{len(texts)} texts were sent; 1 to {MAX_INPUTS} are allowed")
    for index, text in enumerate(texts):
        if isinstance(text, (int, list)) and not isinstance(text, bool):
            raise ValueError("token ids are not taken, because models differ in theirs; send the text itself")
        if not isinstance(text, str):
            raise ValueError(f"item {index} is not a string")
        if not text:
            raise ValueError(f"item {index} is an empty string" if isinstance(value, list) else "the string is empty")
    return tuple(texts)


class EmbeddingsRequest(Lenient):
    """A body of POST /embeddings. `user` and unknown fields are ignored (spec 1, rule 1)."""

    model: str
    input: Annotated[tuple[str, ...], BeforeValidator(_texts, json_schema_input_type=str | list[str])]
    encoding_format: EncodingFormat = "float"
    dimensions: int | None = Field(None, ge=1)


@dataclass(frozen=True, slots=True)
class EmbeddingsJob:
    """Texts to turn into vectors. `dimensions` cuts and renormalises where the model allows it; None is all."""

    texts: tuple[str, ...]
    dimensions: int | None = None

    def most_input_tokens(self, model: EmbeddingModel) -> int:
        """An upper bound of the tokens that are read."""
        return min(most_tokens(utf8_bytes(self.texts), len(self.texts)), model.context_window * len(self.texts))


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors of some texts, in their order. Plain bytes cross a handle without a copy per number.

    Attributes:
        vectors: little-endian float32, row-major [n, dimensions].
        prompt_tokens: tokens that the model read, after truncation.
    """

    vectors: bytes
    dimensions: int
    prompt_tokens: int

    def rows(self) -> list[memoryview]:
        """One view of `4 * dimensions` bytes per text."""
        view, step = memoryview(self.vectors), FLOAT_BYTES * self.dimensions
        return [view[start : start + step] for start in range(0, len(view), step)]


class EmbeddingsEngine(Protocol):
    """An embedding model, wherever it runs: an adapter in `models`, its replica, or the gate before it."""

    async def embed(self, job: EmbeddingsJob) -> Embeddings:
        """One vector per text, in order."""
        ...


def job_of(request: EmbeddingsRequest, model: EmbeddingModel) -> EmbeddingsJob:
    """The job that `request` is to `model`. Raises INVALID_REQUEST for a vector length that it does not offer."""
    return EmbeddingsJob(request.input, _dimensions(request, model))


def _dimensions(request: EmbeddingsRequest, model: EmbeddingModel) -> int:
    wanted = request.dimensions or model.dimensions
    if wanted == model.dimensions or (model.matryoshka and wanted < model.dimensions):
        return wanted
    offer = f"1 to {model.dimensions}" if model.matryoshka else f"{model.dimensions} only"
    raise INVALID_REQUEST(f"`dimensions` {wanted} was requested; `{model.id}` offers {offer}", param="dimensions")


class EmbeddingObject(TypedDict):
    """A vector: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(TypedDict):
    """Tokens that the model read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsReply(TypedDict):
    """Vectors in the order of the inputs."""

    object: Literal["list"]
    data: list[EmbeddingObject]
    model: str
    usage: EmbeddingsUsage


def reply(embeddings: Embeddings, *, model: str, encoding_format: EncodingFormat) -> bytes:
    """An `EmbeddingsReply` as JSON, UTF-8.

    Written row by row: 2,048 vectors of 384 numbers take 0.1 s as floats (digits of the float32, read as a double) and
    5 ms as base64, which OpenAI's SDKs ask for.
    """
    write = _as_floats if encoding_format == "float" else _as_base64
    data = b",".join(
        b'{"object":"embedding","index":%d,"embedding":%s}' % (index, write(row))
        for index, row in enumerate(embeddings.rows())
    )
    usage = {"prompt_tokens": embeddings.prompt_tokens, "total_tokens": embeddings.prompt_tokens}
    return b'{"object":"list","data":[%s],"model":%s,"usage":%s}' % (data, to_json(model), to_json(usage))


def _as_floats(row: memoryview) -> bytes:
    return to_json(struct.unpack(f"<{len(row) // FLOAT_BYTES}f", row))


def _as_base64(row: memoryview) -> bytes:
    return b'"%s"' % base64.b64encode(row)
