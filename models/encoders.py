"""What encoders share: a checkpoint of transformers, its tokenizer, and batches of token ids.

Texts become ids in `encode`, or two by two in `pairs`; ids become batches in `TokenBatcher`, and each batch passes the
network in `forward`. A text that is far longer than the window is cut before it is made tokens, because each takes
memory, and texts are made tokens a few at a time; owners take turns at that.
What comes after the network is the business of the adapters.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from audio.turns import Turns
from contract.base import Frozen
from contract.catalog import EncoderModel
from contract.limits import CHARS_PER_TOKEN
from models.batching import TokenBatcher
from models.imports import Imports
from models.precision import fitting_dtype

INLINE_CHARS = 1_000
"""Texts up to this length altogether are tokenised in the event loop: a thread would take longer to reach.

It takes 1 ms. WordPiece takes the square of a word's length, so words of a hundred digits take 10.
"""

SLICE_CHARS = 32 * 1024
"""Of the texts that are tokenised together, in one turn: 15 ms, and 270 of words of a hundred digits."""

AT_ONCE = 2
"""Slices that are made tokens at a time, one of each owner."""

CPU_SLICE_TOKENS, CPU_CALL_TOKENS = 512, 48
"""Measured with MiniLM: a slice of twice the size gains a tenth at most and doubles the wait of others."""

MAX_WORKERS = 4
"""Calls at one time on a CPU; the cores are shared out among them."""

GPU_SLICE_TOKENS, GPU_CALL_TOKENS = 16_384, 2_048

S = TypeVar("S", bound=str | Sequence[int])
T = TypeVar("T")

IMPORTS = Imports(("torch", "transformers", "transformers.models.auto.modeling_auto", "transformers.modeling_layers"))
"""Of every encoder. What belongs to one architecture is little."""

Dtype = Literal["float32", "bfloat16", "float16"]


class EncoderOptions(Frozen):
    """Options of every encoder.

    Attributes:
        dtype: bfloat16 and float16 fall back to float32 on a CPU that would only emulate them.
        device: of torch; None takes a GPU where there is one.
    """

    dtype: Dtype = "float32"
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Ids of one text or pair, special tokens included.

    Attributes:
        segments: tell the two texts of a pair apart.
        cut: how many more there were, beyond the window, in what was made tokens.
    """

    ids: list[int]
    segments: list[int]
    cut: int = 0

    def __len__(self) -> int:
        return len(self.ids)


Marks = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids of special tokens, and their segments."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What a tokenizer puts before, between and behind two texts that are read together.

    Attributes:
        segments: of the first text and of the second.
    """

    before: Marks
    between: Marks
    behind: Marks
    segments: tuple[int, int]

    @classmethod
    def of(cls, tokenizer: Any) -> Frame:
        """That of `tokenizer`, as it shows in a pair."""
        found = tokenizer.encode("a", "a")
        whose, segments = found.sequence_ids, found.type_ids
        first, second = whose.index(0), whose.index(1)
        ends = first + whose.count(0), second + whose.count(1)

        def marks(start: int, end: int) -> Marks:
            return tuple(found.ids[start:end]), tuple(segments[start:end])

        return cls(
            marks(0, first), marks(ends[0], second), marks(ends[1], len(whose)), (segments[first], segments[second])
        )

    def around(self, first: list[int], second: list[int], window: int) -> Tokens:
        """Both, the longer one cut at its end to fit `window`; where neither is short, both."""
        room = window - sum(len(ids) for ids, _ in (self.before, self.between, self.behind))
        short = min(len(first), len(second), room // 2)
        keep = (room - short, short) if len(first) > len(second) else (short, room - short)
        first, second = first[: keep[0]], second[: keep[1]]
        return Tokens(
            [*self.before[0], *first, *self.between[0], *second, *self.behind[0]],
            [
                *self.before[1],
                *[self.segments[0]] * len(first),
                *self.between[1],
                *[self.segments[1]] * len(second),
                *self.behind[1],
            ],
        )


class Encoder:
    """A network that reads texts, and its tokenizer.

    Args:
        auto_class: class of transformers that loads the checkpoint, by name: `AutoModel`.
        model: its `context_window` bounds one text; the checkpoint may know a smaller number.
        path: folder of the weights.

    Attributes:
        network: the loaded module.
        window: tokens of one text that are read; what is longer is cut at its end.
        most_chars: of one text that are made tokens.
        tokenizer: of the `tokenizers` library.
    """

    def __init__(self, auto_class: str, model: EncoderModel, path: Path, options: EncoderOptions) -> None:
        import torch
        import transformers

        transformers.utils.logging.disable_progress_bar()
        self._name = model.id
        self.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
        threads = (model.serving and model.serving.threads) or len(os.sched_getaffinity(0))
        self.workers = min(threads, MAX_WORKERS) if self.device == "cpu" else 1
        # Ray sets OMP_NUM_THREADS=1 for actors with less than one CPU, so the count is set here.
        torch.set_num_threads(max(1, threads // self.workers))
        self.dtype = choose_dtype(options.dtype, self.device)
        load = getattr(transformers, auto_class).from_pretrained
        self.network = load(path, dtype=self.dtype, **LOCAL_AND_SAFE).to(self.device).eval()
        if hasattr(self.network.config, "use_cache"):
            self.network.config.use_cache = False
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        self.window = _window(model.context_window, path, tokenizer.model_max_length, self.network.config)
        self.most_chars = self.window * CHARS_PER_TOKEN
        self._pad_id = tokenizer.pad_token_id or 0
        self._takes_segments = "token_type_ids" in tokenizer.model_input_names
        # Files may carry a truncation and a fixed padding of their own; both would be applied silently.
        self.tokenizer = tokenizer.backend_tokenizer
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.window, strategy="longest_first", direction="right")
        self._frame = Frame.of(self.tokenizer)
        self._turns = Turns(AT_ONCE)

    async def encode(self, texts: Sequence[str], owner: str = "") -> list[Tokens]:
        """Token ids of each text."""
        return [item async for some in self.encoded(texts, owner) for item in some]

    def encoded(self, texts: Sequence[str], owner: str = "") -> AsyncIterator[list[Tokens]]:
        """The same a slice at a time, for who may have seen enough after one."""
        return self.slices(self._encode, [text[: self.most_chars] for text in texts], owner)

    async def pairs(self, query: str, documents: Sequence[str], owner: str = "") -> list[Tokens]:
        """Token ids of `query` with each document. It is made tokens once."""
        (first,) = await self._all(self._ids, [query[: self.most_chars]], owner)
        cut = [document[: self.most_chars] for document in documents]
        return await self._all(partial(self._pairs, first), cut, owner)

    async def windows(self, texts: Sequence[str], owner: str = "") -> list[list[Tokens]]:
        """Token ids of each text whole, in as many windows as it takes."""
        return await self._all(self._windows, texts, owner)

    async def slices(
        self, work: Callable[[Sequence[S]], list[T]], texts: Sequence[S], owner: str
    ) -> AsyncIterator[list[T]]:
        """What `work` makes of `texts`, a slice of them at a time: in a thread, and in turn, where that takes long.

        Who is cancelled, or asks for no more, has no further slice made.
        """
        short = sum(map(_chars, texts)) <= INLINE_CHARS
        for some in _sliced(texts):
            yield work(some) if short else await self._in_turn(work, some, owner)

    async def _all(self, work: Callable[[Sequence[str]], list[T]], texts: Sequence[str], owner: str) -> list[T]:
        return [made async for some in self.slices(work, texts, owner) for made in some]

    async def _in_turn(self, work: Callable[[Sequence[S]], list[T]], some: Sequence[S], owner: str) -> list[T]:
        async with self._turns.of(owner):
            made = asyncio.ensure_future(asyncio.to_thread(work, some))
            try:
                return await asyncio.shield(made)
            except asyncio.CancelledError:
                # The thread goes on: its place is free only once it has ended.
                await asyncio.wait([made])
                raise

    def _encode(self, texts: Sequence[str]) -> list[Tokens]:
        return [Tokens(one.ids, one.type_ids, _cut(one)) for one in self.tokenizer.encode_batch_fast(texts)]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [one.ids for one in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def _pairs(self, query: list[int], documents: Sequence[str]) -> list[Tokens]:
        return [self._frame.around(query, document, self.window) for document in self._ids(documents)]

    def _windows(self, texts: Sequence[str]) -> list[list[Tokens]]:
        encoded = self.tokenizer.encode_batch_fast(texts)
        return [[Tokens(part.ids, part.type_ids) for part in (found, *found.overflowing)] for found in encoded]

    def forward(self, items: Sequence[Tokens]) -> tuple[Any, Any]:
        """The network's output for `items`, and the mask bool [n, longest]; None where no item was padded."""
        import torch

        longest = max(map(len, items))
        ids = [item.ids + [self._pad_id] * (longest - len(item)) for item in items]
        inputs = {"input_ids": torch.tensor(ids, device=self.device)}
        mask = None
        if any(len(item) < longest for item in items):
            lengths = torch.tensor([[len(item)] for item in items])
            mask = (torch.arange(longest) < lengths).to(self.device)
            inputs["attention_mask"] = mask.long()
        if self._takes_segments and any(map(any, (item.segments for item in items))):
            segments = [item.segments + [0] * (longest - len(item)) for item in items]
            inputs["token_type_ids"] = torch.tensor(segments, device=self.device)
        return self.network(**inputs), mask

    def batcher(self, run: Callable[[list[Tokens]], Sequence[Any]]) -> TokenBatcher[Any, Any]:
        """A batcher for `run` with the token budget of this device."""
        on_cpu = self.device == "cpu"
        return TokenBatcher(
            run,
            slice_tokens=CPU_SLICE_TOKENS if on_cpu else GPU_SLICE_TOKENS,
            call_tokens=CPU_CALL_TOKENS if on_cpu else GPU_CALL_TOKENS,
            workers=self.workers,
            name=self._name,
        )


LOCAL_AND_SAFE = {
    "local_files_only": True,
    "trust_remote_code": False,
    "use_safetensors": True,
    "attn_implementation": "sdpa",
}
"""How checkpoints are loaded: from the verified folder only, and nothing in it is run."""


def _chars(text: str | Sequence[int]) -> int:
    """How many characters a text has, or may have that comes as token ids."""
    return len(text) if isinstance(text, str) else len(text) * CHARS_PER_TOKEN


def _sliced(texts: Sequence[S]) -> Iterator[list[S]]:
    """All of `texts` in order, so many at a time that SLICE_CHARS are reached."""
    slice: list[S] = []
    chars = 0
    for text in texts:
        slice.append(text)
        chars += _chars(text)
        if chars >= SLICE_CHARS:
            yield slice
            slice, chars = [], 0
    if slice:
        yield slice


def _cut(found: Any) -> int:
    """Tokens that did not fit; the pieces that were cut off have special tokens of their own."""
    return sum(len(piece) - sum(piece.special_tokens_mask) for piece in found.overflowing)


def choose_dtype(name: str, device: str) -> Any:
    """The torch dtype `name`, or float32 on a CPU that would only emulate it."""
    import torch

    return getattr(torch, fitting_dtype(name, device))


def read_json(path: Path) -> Any:
    """A JSON file of the checkpoint, or None if it has none of that name."""
    return json.loads(path.read_text()) if path.is_file() else None


def _window(window: int, path: Path, tokenizer_says: int, config: Any) -> int:
    """The smallest of what the stanza, sentence-transformers, the tokenizer and the network say."""
    sentence = (read_json(path / "sentence_bert_config.json") or {}).get("max_seq_length")
    positions = getattr(config, "max_position_embeddings", None)
    return min(said for said in (window, sentence, tokenizer_says, positions) if said)
