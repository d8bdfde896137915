"""Tiny models with random weights, in the folders that vLLM loads. All borrow the embedded model's tokenizer.

What they say means nothing; how it is asked of them, and what changes it, is what the tests look at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models.weights import store as weights

DONOR = "smollm2-135m-instruct"
IMAGE = "<image>"
TEMPLATE = """
{%- for message in messages -%}
<|im_start|>{{ message['role'] }}
{% if message['content'] is string -%}
{{ message['content'] }}
{%- else -%}
{%- for part in message['content'] -%}
{{ '<image>' if part['type'] == 'image' else part['text'] }}
{%- endfor -%}
{%- endif -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
THINKING_TEMPLATE = """
{%- for message in messages -%}
<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor -%}
<|im_start|>assistant
{% if reasoning_effort is defined %}Effort: {{ reasoning_effort }}
{% endif -%}
<think>
{% if enable_thinking is defined and enable_thinking is false %}
</think>

{% endif -%}
"""
"""As Qwen's: thoughts have begun where the answer begins, or are over."""
OMNI = {
    "image_token": "<|image_pad|>",
    "audio_token": "<|audio_pad|>",
    "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
    "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
}
TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "initializer_range": 0.2,
}
"""Of every text model. Weights far from zero, so that every token matters for what comes out."""


def tokenizer(folder: Path, *further: str, **named: str) -> Any:
    """Writes the tokenizer with `further` and `named` control tokens and a template that takes images."""
    from transformers import AutoTokenizer

    made = AutoTokenizer.from_pretrained(weights.ensure(DONOR), extra_special_tokens=named)
    made.add_special_tokens({"additional_special_tokens": list(further)})
    made.chat_template = TEMPLATE
    made.save_pretrained(folder)
    return made


def save(model: Any, folder: Path) -> None:
    """Writes `model` in bfloat16."""
    import torch

    model.to(torch.bfloat16).save_pretrained(folder)


def _rename(file: Path, part: str, by: str) -> None:
    """Gives tensors the names that published weights have, where the library has others."""
    from safetensors.torch import load_file, save_file

    tensors = {name.replace(part, by): tensor for name, tensor in load_file(file).items()}
    save_file(tensors, file, metadata={"format": "pt"})


def qwen3(folder: Path) -> Path:
    """Text only; vLLM reads its decisions by next tokens."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(1)
    vocabulary = len(tokenizer(folder))
    save(Qwen3ForCausalLM(Qwen3Config(vocab_size=vocabulary, **TEXT)), folder)
    return folder


def thinker(folder: Path) -> Path:
    """A Qwen3 that thinks in random tokens, and never comes to an end by itself."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(1)
    made = tokenizer(folder)
    made.add_tokens(["<think>", "</think>"])
    made.chat_template = THINKING_TEMPLATE
    made.save_pretrained(folder)
    save(Qwen3ForCausalLM(Qwen3Config(vocab_size=len(made), **TEXT)), folder)
    return folder


def idefics3(folder: Path) -> Path:
    """Sees, and needs no torchvision for it: one tile of 56 x 56 pixels, four tokens an image."""
    import torch
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration, Idefics3VisionConfig, LlamaConfig
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
    from transformers.models.idefics3.processing_idefics3 import Idefics3Processor

    torch.manual_seed(1)
    made = tokenizer(folder, IMAGE, "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
    vision = Idefics3VisionConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=56,
        patch_size=14,
        initializer_range=0.2,
    )
    config = Idefics3Config(
        vision_config=vision,
        text_config=LlamaConfig(vocab_size=len(made), pad_token_id=made.pad_token_id, **TEXT),
        image_token_id=made.convert_tokens_to_ids(IMAGE),
        pad_token_id=made.pad_token_id,
        scale_factor=2,
    )
    save(Idefics3ForConditionalGeneration(config), folder)
    pictures = Idefics3ImageProcessorPil(
        do_image_splitting=False, size={"longest_edge": 56}, max_image_size={"longest_edge": 56}
    )
    Idefics3Processor(pictures, made, image_seq_len=4, chat_template=TEMPLATE).save_pretrained(folder)
    return folder


def lfm2_vl(folder: Path) -> Path:
    """Liquid's architecture: short convolutions beside attention, and a SigLIP 2 that sees. Needs torchvision."""
    import torch
    from transformers import Lfm2Config, Lfm2VlConfig, Lfm2VlForConditionalGeneration, Siglip2VisionConfig
    from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor
    from transformers.models.lfm2_vl.processing_lfm2_vl import Lfm2VlProcessor

    torch.manual_seed(1)
    made = tokenizer(folder, IMAGE, "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>")
    text = {name: TEXT[name] for name in TEXT if name not in ("head_dim", "tie_word_embeddings")}
    vision = Siglip2VisionConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_patches=64,
        patch_size=16,
        vision_use_head=False,
    )
    config = Lfm2VlConfig(
        vision_config=vision,
        text_config=Lfm2Config(
            vocab_size=len(made),
            layer_types=["conv", "full_attention"],
            conv_dim=64,
            block_dim=64,
            block_ff_dim=128,
            **text,
        ),
        image_token_id=made.convert_tokens_to_ids(IMAGE),
        projector_hidden_size=64,
    )
    save(Lfm2VlForConditionalGeneration(config), folder)
    _rename(folder / "model.safetensors", "vision_tower.", "vision_tower.vision_model.")
    pictures = Lfm2VlImageProcessor(min_image_tokens=4, max_image_tokens=16, do_image_splitting=False)
    Lfm2VlProcessor(pictures, made, chat_template=TEMPLATE).save_pretrained(folder)
    return folder


def clef_omni(folder: Path) -> Path:
    """Clef-Omni's architecture: a Qwen3-Omni thinker with a head that scores every option. Needs torchvision."""
    import json

    import torch
    from safetensors.torch import load_file, save_file
    from transformers import (
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
        Qwen3OmniMoeConfig,
        Qwen3OmniMoeForConditionalGeneration,
        Qwen3OmniMoeProcessor,
        WhisperFeatureExtractor,
    )
    from vllm.model_executor.models.clef_omni import JointSchemaHead

    torch.manual_seed(1)
    made = tokenizer(folder, **OMNI)
    ids = {name.replace("_token", "_token_id"): made.convert_tokens_to_ids(token) for name, token in OMNI.items()}
    text = {name: TEXT[name] for name in TEXT if name not in ("head_dim",)}
    thinker = {
        "audio_config": {
            "d_model": 64,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "output_dim": 64,
            "downsample_hidden_size": 32,
        },
        "vision_config": {
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 64,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
            "image_size": 128,
            "apply_vit_abs_pos_embed": True,
        },
        "text_config": text
        | {
            "vocab_size": len(made),
            "head_dim": 32,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [8, 4, 4],
                "mrope_interleaved": True,
            },
        },
        "audio_start_token_id": ids["audio_bos_token_id"],
        **{name: ids[name] for name in ("audio_token_id", "image_token_id", "video_token_id")},
    }
    config = Qwen3OmniMoeConfig(thinker_config=thinker, enable_audio_output=False)
    save(Qwen3OmniMoeForConditionalGeneration(config), folder)
    # As published: an index keeps the weights of the head apart from those of the thinker.
    names = load_file(folder / "model.safetensors")
    index = {"weight_map": dict.fromkeys(names, "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    shape = {"hidden_size": 64, "width": 32, "routing_layers": 1, "layers": 1, "heads": 2, "feedforward": 64}
    (folder / "joint_head_config.json").write_text(json.dumps(shape))
    head = JointSchemaHead(**shape).to(torch.bfloat16)
    save_file(dict(head.state_dict()), folder / "joint_head.safetensors")
    Qwen3OmniMoeProcessor(
        Qwen2VLImageProcessor(patch_size=16),
        Qwen2VLVideoProcessor(patch_size=16),
        WhisperFeatureExtractor(feature_size=128),
        made,
        TEMPLATE,
    ).save_pretrained(folder)
    return folder
