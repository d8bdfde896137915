"""Qwen3.5 with tiny random weights, in the folder that vLLM loads.

Every part is there and is of its true class: linear attention beside attention over all, the part that sees, the
processor, a tokenizer of Qwen's kind. Only sizes differ, and the vocabulary is letters. Qwen3.8 27B is taken to be of
this architecture too: its `config.json` could not be read where this was written.

The chat template is ours, in the family's form; the published one comes with the published weights.
"""

from pathlib import Path
from typing import Any

from tests.twins import letters

NAMED = {
    "image_token": "<|image_pad|>", "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>",
}  # fmt: skip
CONTROL = ("<|im_start|>", "<|im_end|>")
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Tokens of their own that are text all the same: a decoder that leaves out control tokens keeps them."""
ANGLES = {
    "rope_type": "default", "rope_theta": 10_000_000.0, "partial_rotary_factor": 0.25, "mrope_section": [4, 2, 2],
    "mrope_interleaved": True,
}  # fmt: skip
TEXT = letters.SHAPE | {
    "layer_types": ["linear_attention", "full_attention"], "max_position_embeddings": 262_144, "num_attention_heads": 4,
    "num_key_value_heads": 1, "head_dim": 64, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "rope_parameters": ANGLES,
}  # fmt: skip
SIGHT = letters.SHAPE | {"depth": 2, "num_heads": 2, "out_hidden_size": 64, "num_position_embeddings": 64}


def make(folder: Path) -> Path:
    import torch
    from transformers import (
        Qwen2VLImageProcessor,
        Qwen3_5Config,
        Qwen3_5ForConditionalGeneration,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    torch.manual_seed(1)
    folder.mkdir(parents=True)
    words = tokenizer()
    number = words.convert_tokens_to_ids
    ids = {"image_token_id": number("<|image_pad|>"), "video_token_id": number("<|video_pad|>")}
    ids |= {f"vision_{at}_token_id": number(f"<|vision_{at}|>") for at in ("start", "end")}
    text = TEXT | {"vocab_size": len(words), "eos_token_id": number("<|im_end|>")}
    config = Qwen3_5Config(text_config=text, vision_config=SIGHT, **ids)
    letters.save(Qwen3_5ForConditionalGeneration(config), folder)
    size = {"shortest_edge": 32 * 32, "longest_edge": 128 * 128}
    parts = Qwen2VLImageProcessor(patch_size=16, size=size), words, Qwen3VLVideoProcessor()
    Qwen3VLProcessor(*parts, chat_template=words.chat_template).save_pretrained(folder)
    return folder


def tokenizer() -> Any:
    """Of Qwen's class: bytes, and each digit alone."""
    from tokenizers import AddedToken, pre_tokenizers
    from transformers import Qwen3_5Tokenizer

    vocabulary, merges = letters.vocabulary(["<|endoftext|>"], sorted(pre_tokenizers.ByteLevel.alphabet()))
    words = Qwen3_5Tokenizer(vocab=vocabulary, merges=merges, eos_token="<|im_end|>", extra_special_tokens=NAMED)
    words.add_special_tokens({"additional_special_tokens": list(CONTROL)})
    words.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in MARKS])
    words.chat_template = Path(__file__).with_name("qwen35.jinja").read_text("utf-8")
    return words
