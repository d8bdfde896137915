"""Text to vectors with any sentence encoder that transformers can load. Spec 4, POST /embeddings.

Pooling and normalisation are read from the files that sentence-transformers publishes beside the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from contract.catalog import EmbeddingModel, Serving
from contract.embeddings import Embeddings
from models.encoders import Encoder, Tokens, need_folder, read_json
from models.weights.files import WeightsError

Pooling = Literal["mean", "cls", "lasttoken"]
"""How token vectors become one: as sentence-transformers calls them."""


@dataclass(frozen=True, slots=True)
class Head:
    """What follows the network."""

    pooling: Pooling
    normalise: bool


class SentenceEncoder:
    """Texts to float32 vectors, batched over callers. Embedders and the cosine reranker stand on it."""

    def __init__(self, model_id: str, serving: Serving, path: Path | None, *, window: int) -> None:
        folder = need_folder(path, model_id)
        self.head = read_head(folder, serving.options)
        self.encoder = Encoder("AutoModel", serving, folder, window=window)
        self.batcher = self.encoder.batcher(self._run, serving, model_id)

    async def vectors(self, texts: Sequence[str]) -> tuple[Any, int]:
        """Vectors as numpy float32 [n, dimensions], and the number of tokens read."""
        import numpy as np

        items = await self.encoder.encode(texts)
        return np.stack(await self.batcher.submit(items)), sum(map(len, items))

    def _run(self, items: list[Tokens]) -> Any:
        import torch

        with torch.inference_mode():
            output, mask = self.encoder.forward(items)
            pooled = _pool(output.last_hidden_state, mask, self.head.pooling).float()
            if self.head.normalise:
                pooled = torch.nn.functional.normalize(pooled, dim=1)
            return pooled.cpu().numpy()


class TransformerEmbedder:
    """An embedding model of the catalogue.

    Options of its stanza: `dtype` (bfloat16 falls back to float32 on a CPU without it), `device`, `batch_tokens`,
    `pooling` and `normalise` for checkpoints that do not publish theirs.
    """

    def __init__(self, model: EmbeddingModel, path: Path | None) -> None:
        serving = model.serving or Serving(adapter="models.embeddings:TransformerEmbedder", runtime=model.id)
        self.model = model
        self._sentences = SentenceEncoder(model.id, serving, path, window=model.context_window)
        size = self._sentences.encoder.network.config.hidden_size
        if size != model.dimensions:
            raise WeightsError(
                f"the weights of `{model.id}` give {size} dimensions, its stanza says {model.dimensions}"
            )

    async def embed(self, texts: list[str], dimensions: int | None = None) -> Embeddings:
        """One vector per text, in order; with `dimensions`, its first numbers scaled to length 1 again.

        Texts longer than the window are cut at their end. `contract.embeddings.dimensions_of` says what is allowed.
        """
        import numpy as np

        vectors, tokens = await self._sentences.vectors(texts)
        if dimensions and dimensions < vectors.shape[1]:
            vectors = vectors[:, :dimensions]
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return Embeddings(vectors.astype("<f4").tobytes(), dimensions=vectors.shape[1], prompt_tokens=tokens)

    async def check_health(self) -> None:
        """Raises RuntimeError if the model makes no progress."""
        self._sentences.batcher.check()

    def close(self) -> None:
        """Ends the worker thread."""
        self._sentences.batcher.close()


def read_head(folder: Path, options: dict[str, Any]) -> Head:
    """Pooling and normalisation as published in `modules.json`, or as `options` say. Raises WeightsError."""
    modules = read_json(folder / "modules.json") or []
    kinds = {module["type"].rpartition(".")[2]: folder / module["path"] for module in modules}
    if unknown := sorted(kinds.keys() - {"Transformer", "Pooling", "Normalize"}):
        raise WeightsError(f"`{folder}` has a module `{unknown[0]}` after its network, which is not supported")
    pooling: Any = options.get("pooling") or _published_pooling(kinds.get("Pooling"))
    if pooling not in get_args(Pooling):
        raise WeightsError(
            f"`{folder}` publishes pooling `{pooling}`; set `options.pooling` to one of {', '.join(get_args(Pooling))}"
        )
    return Head(pooling, options.get("normalise", "Normalize" in kinds))


def _published_pooling(folder: Path | None) -> str | None:
    """The one pooling mode in the file of sentence-transformers, in its newer or its older form."""
    said = (read_json(folder / "config.json") if folder else None) or {}
    if mode := said.get("pooling_mode"):
        return str(mode)
    flags = {key.removeprefix("pooling_mode_"): value for key, value in said.items() if key.startswith("pooling_mode_")}
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
