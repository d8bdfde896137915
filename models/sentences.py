"""Sentences to vectors: the network, and the pooling and normalisation that follow it.

Both are read from the files that sentence-transformers publishes beside the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from contract.catalog import EncoderModel
from models.encoders import Encoder, EncoderOptions, Tokens, read_json
from models.weights.files import WeightsError, need_folder

Pooling = Literal["mean", "cls", "lasttoken"]
"""How token vectors become one: as sentence-transformers calls them."""


@dataclass(frozen=True, slots=True)
class Head:
    """What follows the network."""

    pooling: Pooling
    normalise: bool


class SentenceEncoder:
    """Texts to float32 vectors, batched over callers. All that compares vectors stands on it."""

    def __init__(self, model: EncoderModel, path: Path | None, options: EncoderOptions) -> None:
        folder = need_folder(path, model.id)
        self.head = read_head(folder)
        self.encoder = Encoder("AutoModel", model, folder, options)
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
    """Pooling and normalisation as published in `modules.json`. Raises WeightsError."""
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
    flags = {
        key.removeprefix("pooling_mode_"): value for key, value in config.items() if key.startswith("pooling_mode_")
    }
    chosen = [flag for flag, value in flags.items() if value]
    return PUBLISHED.get(chosen[0]) if len(chosen) == 1 else None


PUBLISHED: dict[str, Pooling] = {"mean_tokens": "mean", "cls_token": "cls", "lasttoken": "lasttoken"}
"""Flags of the older form of the pooling file, without their prefix."""


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
