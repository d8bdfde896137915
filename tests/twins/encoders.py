"""Encoders with tiny random weights, as publishers write them.

    bge-m3               XLM-RoBERTa; what follows it is the first token's vector, normalised
    bge-reranker-base    XLM-RoBERTa with one label
    nomic-embed-code     Qwen2; the last token's vector, normalised

Dimensions and positions are the published ones; layers, heads and vocabulary are tiny.
"""

import json
from pathlib import Path
from typing import Any

from tests.twins import letters

SMALL: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
BERTS = {
    "bge-m3": ("XLMRobertaModel", {"hidden_size": 1024, "max_position_embeddings": 8194}),
    "bge-reranker-base": (
        "XLMRobertaForSequenceClassification",
        {"hidden_size": 64, "max_position_embeddings": 514, "num_labels": 1},
    ),
}
POOLING = {"bge-m3": "cls_token", "nomic-embed-code": "lasttoken"}


def make(folder: Path, name: str) -> Path:
    import torch

    torch.manual_seed(1)
    folder.mkdir(parents=True)
    if name == "nomic-embed-code":
        code(folder)
    else:
        bert(folder, *BERTS[name])
    if name in POOLING:
        flags = {f"pooling_mode_{mode}": mode == POOLING[name] for mode in ("cls_token", "mean_tokens", "lasttoken")}
        write_head(folder, flags, "Normalize")
    return folder


def bert(folder: Path, kind: str, shape: dict[str, Any]) -> None:
    """XLM-RoBERTa of the class `kind`, and a tokenizer of its class: pieces of words with scores."""
    import transformers

    letter = [(text, -float(number)) for number, text in enumerate(letters.vocabulary(["▁"], [])[0])]
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *letter]
    words = transformers.XLMRobertaTokenizer(vocab=pieces, model_max_length=shape["max_position_embeddings"] - 2)
    words.save_pretrained(folder)
    special = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}
    config = transformers.XLMRobertaConfig(vocab_size=len(words), initializer_range=0.2, **SMALL, **shape, **special)
    getattr(transformers, kind)(config).save_pretrained(folder)


def code(folder: Path) -> None:
    """Qwen2, and a tokenizer of its class that ends each text with a token, as the published one does."""
    from tokenizers import pre_tokenizers, processors
    from transformers import Qwen2Config, Qwen2Model, Qwen2Tokenizer

    end = "<|endoftext|>"
    vocabulary, merges = letters.vocabulary([end], sorted(pre_tokenizers.ByteLevel.alphabet()))
    words = Qwen2Tokenizer(vocab=vocabulary, merges=merges, model_max_length=32768)
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, vocabulary[end])]
    )
    words.save_pretrained(folder)
    heads = {"num_key_value_heads": 1, "head_dim": 32, "hidden_size": 3584, "max_position_embeddings": 32768}
    config = Qwen2Config(vocab_size=len(words), initializer_range=0.05, **SMALL, **heads)
    Qwen2Model(config).save_pretrained(folder)


def write_head(folder: Path, pooling: dict[str, Any], *further: str) -> None:
    """The parts behind an encoder: its pooling with these settings, and modules of the kinds in `further`."""
    kinds = ("Transformer", "Pooling", *further)
    modules = [
        {"path": f"{number}_{kind}" if number else "", "type": f"sentence_transformers.models.{kind}"}
        for number, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
