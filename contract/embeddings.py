"""POST /embeddings: body, job, protocol and reply.

EmbeddingsRequest -> EmbeddingsJob -> EmbeddingsEngine -> Embeddings -> reply()
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, get_args

from pydantic import BeforeValidator, Field, SkipValidation
from pydantic_core import to_json
from typing_extensions import TypedDict

from contract.base import Lenient, Text, read_texts
from contract.catalog import EmbeddingModel
from contract.catalog.base import likely_tokens, most_tokens, utf8_bytes
from contract.catalog.encoders import InputType
from contract.errors import INVALID_REQUEST

MAX_INPUTS = 2048
"""Texts of one request."""
TOKEN_TEXT_BYTES = 128
"""Most bytes of the text of one token id, by which the cost of ids is reserved."""

EncodingFormat = Literal["float", "base64"]

FLOAT_BYTES = 4
MAX_FLOATS = 2**20
"""Numbers of one reply in the form `float`, which takes four times the resources of base64."""
NUMBER_BYTES: dict[EncodingFormat, int] = {"float": 24, "base64": 6}
"""Most bytes of a number in a reply: `-1.1754943508222875e-38,`, or four bytes in base64."""
VECTOR_BYTES = 64
"""Bytes around a vector in a reply."""

INPUT_TYPES: dict[str, InputType] = {kind: kind for kind in get_args(InputType)} | {
    "search_query": "query",
    "search_document": "document",
    "passage": "document",
}
"""Values of `input_type`, in the spellings of several providers."""


def _input_type(value: Any) -> Any:
    if value is None or (isinstance(value, str) and value in INPUT_TYPES):
        return value and INPUT_TYPES[value]
    raise ValueError(f"it must be one of {', '.join(INPUT_TYPES)}")


class EmbeddingsRequest(Lenient):
    """A body of POST /embeddings. `user` and unknown fields are ignored.

    Attributes:
        input: texts, or ids of the model's own tokenizer.
        input_type: purpose of the texts; models that were trained with prompts read one before each text.
        truncate: whether a text beyond the model's window is cut at its end; else it is refused.
    """

    model: str
    input: Annotated[SkipValidation[tuple[Text, ...]], read_texts(MAX_INPUTS, "texts")]
    encoding_format: EncodingFormat = "float"
    dimensions: int | None = Field(None, ge=1)
    input_type: Annotated[
        InputType | None, BeforeValidator(_input_type, json_schema_input_type=Literal[*INPUT_TYPES] | None)
    ] = None
    truncate: bool = True


@dataclass(frozen=True, slots=True)
class EmbeddingsJob:
    """Texts to turn into vectors.

    Attributes:
        prompt: text that the model reads before each text.
        truncate: whether a text beyond the window is cut at its end; else CONTEXT_LENGTH_EXCEEDED.
        owner: organisation that the work is for; owners take turns.
    """

    texts: tuple[Text, ...]
    prompt: str = ""
    truncate: bool = True
    owner: str = ""

    def most_input_tokens(self, model: EmbeddingModel) -> int:
        count = len(self.texts)
        read_bytes = utf8_bytes(text for text in self.texts if isinstance(text, str))
        read_bytes += sum(TOKEN_TEXT_BYTES * len(text) for text in self.texts if isinstance(text, tuple))
        read_bytes += utf8_bytes((self.prompt,)) * count
        return min(most_tokens(read_bytes, count), model.context_window * count)

    def likely_input_tokens(self, model: EmbeddingModel) -> int:
        likely = (likely_tokens([text]) if isinstance(text, str) else len(text) for text in self.texts)
        return sum(min(tokens, model.context_window) for tokens in likely)


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors of some texts, in their order: little-endian float32, row-major [n, dimensions].

    Plain bytes cross a handle without a copy per number. `prompt_tokens` counts tokens after truncation.
    """

    vectors: bytes
    dimensions: int
    prompt_tokens: int

    def rows(self) -> list[memoryview]:
        """Returns one view of `4 * dimensions` bytes per text."""
        view, step = memoryview(self.vectors), FLOAT_BYTES * self.dimensions
        return [view[start : start + step] for start in range(0, len(view), step)]


class EmbeddingsEngine(Protocol):
    """An embedding model: an adapter in `models`, or its replica. The gate calls its methods by name."""

    async def embed(self, job: EmbeddingsJob) -> Embeddings:
        """Returns one vector per text, in order. Raises INVALID_REQUEST for ids that the tokenizer lacks."""


def job_of(request: EmbeddingsRequest, model: EmbeddingModel) -> EmbeddingsJob:
    """Returns the job of `request` for `model`. Raises INVALID_REQUEST for a vector length that it does not offer."""
    prompt = model.prompts.get(request.input_type, "") if request.input_type else ""
    if request.dimensions not in (None, model.dimensions):
        raise INVALID_REQUEST(
            f"`dimensions` {request.dimensions} is not available; `{model.id}` offers {model.dimensions} only",
            param="dimensions",
        )
    return EmbeddingsJob(request.input, prompt, request.truncate)


def reply_bytes(job: EmbeddingsJob, model: EmbeddingModel, encoding_format: EncodingFormat) -> int:
    """Returns the most bytes of the reply. Raises INVALID_REQUEST for more numbers than the form `float` may have."""
    count, dimensions = len(job.texts), model.dimensions
    if encoding_format == "float" and count * dimensions > MAX_FLOATS:
        raise INVALID_REQUEST(
            f"{count} vectors of {dimensions} numbers were requested as `float`; at most {MAX_FLOATS} are allowed; use "
            "`base64`, as OpenAI's clients do by default, or send fewer texts",
            param="encoding_format",
        )
    return count * (dimensions * NUMBER_BYTES[encoding_format] + VECTOR_BYTES)


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


def reply(embeddings: Embeddings, *, model: str, encoding_format: EncodingFormat) -> Iterator[bytes]:
    """Yields an `EmbeddingsReply` as JSON, UTF-8, vector by vector: all of them may take a tenth of a second.

    2,048 vectors of 384 numbers are 17 MB as floats (digits of the float32, read as a double), and 4 MB as base64,
    which OpenAI's SDKs request and which takes a tenth of the time.
    """
    usage = {"prompt_tokens": embeddings.prompt_tokens, "total_tokens": embeddings.prompt_tokens}
    yield b'{"object":"list","data":['
    for index, row in enumerate(embeddings.rows()):
        numbers = struct.unpack(f"<{len(row) // FLOAT_BYTES}f", row) if encoding_format == "float" else None
        vector = b'"%s"' % base64.b64encode(row) if numbers is None else to_json(numbers)
        yield b'%s{"object":"embedding","index":%d,"embedding":%s}' % (b"," if index else b"", index, vector)
    yield b'],"model":%s,"usage":%s}' % (to_json(model), to_json(usage))
