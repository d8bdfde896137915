"""A BERT of some kilobytes with random weights, written as its publishers write theirs."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from tests.twins.encoders import write_head

WORDS = ["time", "river", "bread", "house", "a", "b", "c", "the", "old", "young", "not", "query"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_tiny_bert(
    folder: Path, kind: str, *, pooling: str | None = None, normalise: bool = True, **config: Any
) -> Path:
    """Writes a checkpoint of the transformers class `kind`: 32 dimensions, 2 layers, 64 positions, 12 words."""
    import torch
    import transformers

    torch.manual_seed(7)
    (folder / "vocab.txt").write_text("\n".join(SPECIAL + WORDS))
    transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    settings = transformers.BertConfig(
        vocab_size=len(SPECIAL + WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.5,
        **config,
    )
    getattr(transformers, kind)(settings).save_pretrained(folder)
    if pooling:
        write_head(folder, {"pooling_mode": pooling}, *(["Normalize"] if normalise else []))
    return folder


class Counted:
    """A tokenizer that notes how many characters it is given at each call."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.calls: list[int] = []

    def encode_batch_fast(self, texts: list[Any], **options: Any) -> Any:
        self.calls.append(sum(len(text) if isinstance(text, str) else sum(map(len, text)) for text in texts))
        return self._tokenizer.encode_batch_fast(texts, **options)

    def post_process(self, first: Any, second: Any) -> Any:
        return self._tokenizer.post_process(first, second)


class Gated:
    """A tokenizer that lets one call pass for each release of `gate`, and notes the first word of each."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.first: list[str] = []
        self.entered, self.gate = threading.Semaphore(0), threading.Semaphore(0)

    def encode_batch_fast(self, texts: list[Any], **options: Any) -> Any:
        self.first.append(texts[0].partition(" ")[0])
        self.entered.release()
        assert self.gate.acquire(timeout=60)
        return self._tokenizer.encode_batch_fast(texts, **options)

    async def called(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=60)
