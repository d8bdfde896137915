"""Parts that encoders share: a checkpoint of transformers, batches of token ids, and vectors of sentences.

Texts become ids in `WindowTokenizer`, ids become batches in `TokenBatcher`, and each batch passes the network in
`forward`. What comes after the network is the business of the adapters; two of them want the vectors of whole texts,
which `SentenceEncoder` pools and normalises.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from contract.base import Frozen
from contract.catalog.encoders import EncoderModel
from models import Imports
from models.batching import TokenBatcher
from models.cpu import fitting_dtype
from models.options import read
from models.stepping import ThreadedAdapter
from models.tokenizer import Tokens, WindowTokenizer
from models.weights.files import WeightsError, need_folder

CPU_SLICE_TOKENS, CPU_CALL_TOKENS = 512, 48
"""Measured with MiniLM: a slice of twice the size gains a tenth at most and doubles the wait of others."""

MAX_WORKERS = 4
"""Calls at one time on a CPU; the cores are shared out among them."""

GPU_SLICE_TOKENS, GPU_CALL_TOKENS = 16_384, 2_048

IMPORTS = Imports(("torch", "transformers", "transformers.models.auto.modeling_auto", "transformers.modeling_layers"))
"""Modules that every encoder imports while it loads. Those of one architecture are few."""

Dtype = Literal["float32", "bfloat16", "float16"]

Pooling = Literal["mean", "cls", "lasttoken"]
"""Ways to make one vector of token vectors, by their names in sentence-transformers."""


class EncoderOptions(Frozen):
    """Options of every encoder. `device` is one of torch; None takes a GPU where there is one.

    The types bfloat16 and float16 fall back to float32 on a CPU that would only emulate them.
    """

    dtype: Dtype = "float32"
    device: str | None = None


class TextEncoder(WindowTokenizer):
    """A network that reads texts, with its tokenizer.

    Args:
        auto_class: class of transformers that loads the checkpoint, by name: `AutoModel`.
        model: its `context_window` bounds one text; the checkpoint may know a smaller number.
    """

    def __init__(self, auto_class: str, model: EncoderModel, path: Path) -> None:
        import torch
        import transformers

        options = read(model, EncoderOptions)
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
        if self.device == "cpu":
            from models.short_encoder import shorten

            shorten(self.network)
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        window = _window(model.context_window, path, tokenizer.model_max_length, self.network.config)
        super().__init__(tokenizer.backend_tokenizer, window)
        self._pad_id = tokenizer.pad_token_id or 0
        self._takes_segments = "token_type_ids" in tokenizer.model_input_names

    def forward(self, items: Sequence[Tokens]) -> tuple[Any, Any]:
        """The network's output for `items`, and the mask bool [n, longest]; None where no item was padded."""
        import torch

        longest = max(map(len, items))
        ids = [item.ids + [self._pad_id] * (longest - len(item)) for item in items]
        inputs = {"input_ids": torch.tensor(ids, device=self.device)}
        mask = None
        if any(len(item) < longest for item in items):
            mask = (torch.arange(longest) < torch.tensor([[len(item)] for item in items])).to(self.device)
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
"""Arguments with which checkpoints are loaded: from the verified folder only, and nothing in it is run."""


def choose_dtype(name: str, device: str) -> Any:
    """The torch dtype `name`, or float32 on a CPU that would only emulate it."""
    import torch

    return getattr(torch, fitting_dtype(name, device))


def read_json(path: Path) -> Any:
    """A JSON file of the checkpoint, or None if it has none of that name."""
    return json.loads(path.read_text()) if path.is_file() else None


def _window(window: int, path: Path, tokenizer_window: int, config: Any) -> int:
    """The smallest window that the stanza, sentence-transformers, the tokenizer or the network states."""
    sentence = (read_json(path / "sentence_bert_config.json") or {}).get("max_seq_length")
    positions = getattr(config, "max_position_embeddings", None)
    return min(bound for bound in (window, sentence, tokenizer_window, positions) if bound)


class EncoderAdapter(ThreadedAdapter):
    """An adapter over one encoder, with a batcher."""

    options_type = EncoderOptions
    imports = IMPORTS
    _workers: TokenBatcher[Any, Any]


@dataclass(frozen=True, slots=True)
class Head:
    """Steps after the network."""

    pooling: Pooling
    normalise: bool


class SentenceEncoder:
    """Texts to float32 vectors, batched over callers. All that compares vectors stands on it."""

    def __init__(self, model: EncoderModel, path: Path | None) -> None:
        folder = need_folder(path, model.id)
        self.head = read_head(folder)
        self.encoder = TextEncoder("AutoModel", model, folder)
        self.batcher = self.encoder.batcher(self._run)

    async def vectors(self, texts: Sequence[str], owner: str = "") -> tuple[Any, int]:
        """Vectors as numpy float32 [n, dimensions], and the number of tokens read."""
        return await self.vectors_of(await self.encoder.encode(texts, owner), owner)

    async def vectors_of(self, items: Sequence[Tokens], owner: str = "") -> tuple[Any, int]:
        """The same for texts that `encoder.encode` has read already."""
        import numpy as np

        return np.stack(await self.batcher.submit(items, owner)), sum(map(len, items))

    def _run(self, items: list[Tokens]) -> Any:
        import torch

        with torch.inference_mode():
            output, mask = self.encoder.forward(items)
            pooled = _pool(output.last_hidden_state, mask, self.head.pooling).float()
            if self.head.normalise:
                pooled = torch.nn.functional.normalize(pooled, dim=1)
            return pooled.cpu().numpy()


def read_head(folder: Path) -> Head:
    """Pooling and normalisation, as sentence-transformers publishes them in `modules.json`. Raises WeightsError."""
    modules = read_json(folder / "modules.json") or []
    kinds = {module["type"].rpartition(".")[2]: folder / module["path"] for module in modules}
    if unknown := sorted(kinds.keys() - {"Transformer", "Pooling", "Normalize"}):
        raise WeightsError(f"`{folder}` has a module `{unknown[0]}` after its network, which is not supported")
    pooling: Any = _published_pooling(kinds.get("Pooling"))
    if pooling not in get_args(Pooling):
        raise WeightsError(
            f"`{folder}` publishes the pooling `{pooling}`, and supported are {', '.join(get_args(Pooling))}"
        )
    return Head(pooling, "Normalize" in kinds)


def _published_pooling(folder: Path | None) -> str | None:
    """The one pooling mode in the file of sentence-transformers, in its newer or its older form."""
    config = (read_json(folder / "config.json") if folder else None) or {}
    if mode := config.get("pooling_mode"):
        return str(mode)
    chosen = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    return PUBLISHED.get(chosen[0]) if len(chosen) == 1 else None


PUBLISHED: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Flags of the older form of the pooling file."""


def _pool(hidden: Any, mask: Any, pooling: Pooling) -> Any:
    """`hidden` [n, tokens, d] and its mask, None for no padding, to [n, d]."""
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "lasttoken":
        return hidden[:, -1] if mask is None else hidden[list(range(len(hidden))), mask.sum(1) - 1]
    if mask is None:
        return hidden.float().mean(1)
    weights = mask.unsqueeze(-1).float()
    return (hidden.float() * weights).sum(1) / weights.sum(1)
