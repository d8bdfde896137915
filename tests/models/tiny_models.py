"""Tiny models with random weights, in the folders that vLLM loads. All borrow the embedded model's tokenizer.

What they say means nothing; how it is asked of them, and what changes it, is what the tests look at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models import weights

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


def tokenizer(folder: Path, *further: str) -> Any:
    """Writes the tokenizer with `further` control tokens and a template that takes images."""
    from transformers import AutoTokenizer

    made = AutoTokenizer.from_pretrained(weights.ensure(DONOR))
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
