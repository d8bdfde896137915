"""What encoders share: a checkpoint of transformers, and batches of token ids.

Texts become ids in `WindowTokenizer`, ids become batches in `TokenBatcher`, and each batch passes the network in
`forward`. What comes after the network is the business of the adapters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from contract.base import Frozen
from contract.catalog import EncoderModel
from models.batching import TokenBatcher
from models.imports import Imports
from models.precision import fitting_dtype
from models.tokenizer import Tokens, WindowTokenizer

CPU_SLICE_TOKENS, CPU_CALL_TOKENS = 512, 48
"""Measured with MiniLM: a slice of twice the size gains a tenth at most and doubles the wait of others."""

MAX_WORKERS = 4
"""Calls at one time on a CPU; the cores are shared out among them."""

GPU_SLICE_TOKENS, GPU_CALL_TOKENS = 16_384, 2_048

IMPORTS = Imports(("torch", "transformers", "transformers.models.auto.modeling_auto", "transformers.modeling_layers"))
"""What every encoder imports while it loads. What belongs to one architecture is little."""

Dtype = Literal["float32", "bfloat16", "float16"]


class EncoderOptions(Frozen):
    """Options of every encoder.

    Attributes:
        dtype: bfloat16 and float16 fall back to float32 on a CPU that would only emulate them.
        device: of torch; None takes a GPU where there is one.
    """

    dtype: Dtype = "float32"
    device: str | None = None


class Encoder(WindowTokenizer):
    """A network that reads texts, with its tokenizer.

    Args:
        auto_class: class of transformers that loads the checkpoint, by name: `AutoModel`.
        model: its `context_window` bounds one text; the checkpoint may know a smaller number.
        path: folder of the weights.

    Attributes:
        network: the loaded module.
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
