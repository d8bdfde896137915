"""Gemma 4 with tiny random weights, in the folder that vLLM loads.

Every part is there and is of its true class: attention over a window beside attention over all, the experts, the part
that sees, the processor, a tokenizer of Gemma's kind. Only sizes differ, and the vocabulary is letters.

A variant is `unified`, which sees and hears without a part of its own for it (12B), or `experts` (26B A4B).
The chat template is ours, in the form that Google documents; the published one comes with the published weights.
"""

from pathlib import Path
from typing import Any

from tests.twins import letters

NAMED = {
    "image_token": "<|image|>", "boi_token": "<|image>", "eoi_token": "<image|>",
    "audio_token": "<|audio|>", "boa_token": "<|audio>", "eoa_token": "<audio|>",
}  # fmt: skip
CONTROL = (
    *("<|turn>", "<turn|>", "<|think|>", "<|channel>", "<channel|>", "<|tool>", "<tool|>", "<|tool_call>"),
    *("<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>', "<|video|>"),
)
TEXT = letters.SHAPE | {
    "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 1024, "max_position_embeddings": 262_144,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "attention_k_eq_v": True,
    "global_head_dim": 64, "num_global_key_value_heads": 1, "final_logit_softcapping": 30.0,
    "use_bidirectional_attention": "vision",
}  # fmt: skip
EXPERTS = {
    "hidden_size_per_layer_input": 0, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2,
    "moe_intermediate_size": 64,
}  # fmt: skip
SIGHT = letters.SHAPE | {
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "patch_size": 16, "standardize": True,
    "default_output_length": 70, "position_embedding_size": 1024,
}  # fmt: skip


def make(folder: Path, variant: str) -> Path:
    import torch

    torch.manual_seed(1)
    folder.mkdir(parents=True)
    words = tokenizer()
    ids = {f"{name}_id": words.convert_tokens_to_ids(text) for name, text in NAMED.items()}
    ids["eoa_token_index"] = ids.pop("eoa_token_id")
    ids["video_token_id"] = words.convert_tokens_to_ids("<|video|>")
    text = TEXT | {
        "vocab_size": len(words),
        "eos_token_id": [words.eos_token_id, words.convert_tokens_to_ids("<turn|>")],
    }
    network, processor = {"unified": unified, "experts": experts}[variant](text, ids, words)
    letters.save(network, folder)
    processor.save_pretrained(folder)
    return folder


def unified(text: dict[str, Any], ids: dict[str, int], words: Any) -> tuple[Any, Any]:
    from transformers import Gemma4UnifiedConfig, Gemma4UnifiedForConditionalGeneration, Gemma4UnifiedProcessor
    from transformers.models.gemma4_unified.feature_extraction_gemma4_unified import Gemma4UnifiedAudioFeatureExtractor
    from transformers.models.gemma4_unified.image_processing_gemma4_unified import Gemma4UnifiedImageProcessor
    from transformers.models.gemma4_unified.video_processing_gemma4_unified import Gemma4UnifiedVideoProcessor

    sight = {"mm_embed_dim": 64, "output_proj_dims": 64, "num_soft_tokens": 70}
    config = Gemma4UnifiedConfig(text_config=text, vision_config=sight, audio_config={"audio_embed_dim": 640}, **ids)
    parts = Gemma4UnifiedAudioFeatureExtractor(), Gemma4UnifiedImageProcessor(max_soft_tokens=70)
    processor = Gemma4UnifiedProcessor(
        *parts, words, Gemma4UnifiedVideoProcessor(), chat_template=words.chat_template, image_seq_length=70
    )
    return Gemma4UnifiedForConditionalGeneration(config), processor


def experts(text: dict[str, Any], ids: dict[str, int], words: Any) -> tuple[Any, Any]:
    from transformers import Gemma4Config, Gemma4ForConditionalGeneration, Gemma4Processor
    from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor
    from transformers.models.gemma4.image_processing_gemma4 import Gemma4ImageProcessor
    from transformers.models.gemma4.video_processing_gemma4 import Gemma4VideoProcessor

    config = Gemma4Config(text_config=text | EXPERTS, vision_config=SIGHT, audio_config=None, **ids)
    parts = Gemma4AudioFeatureExtractor(), Gemma4ImageProcessor(max_soft_tokens=70)
    processor = Gemma4Processor(
        *parts, words, Gemma4VideoProcessor(), chat_template=words.chat_template, image_seq_length=70
    )
    return Gemma4ForConditionalGeneration(config), processor


def tokenizer() -> Any:
    """Of Gemma's class: spaces are `▁`, and what the vocabulary lacks is bytes."""
    from transformers import GemmaTokenizer

    first = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary, merges = letters.vocabulary(first, ["▁", "\n"])
    words = GemmaTokenizer(vocab=vocabulary, merges=merges, extra_special_tokens=NAMED)
    words.add_special_tokens({"additional_special_tokens": list(CONTROL)})
    words.chat_template = Path(__file__).with_name("gemma4.jinja").read_text("utf-8")
    return words
