"""Tiny models with random weights, in the folders that vLLM loads. All borrow the embedded model's tokenizer.

What they say means nothing; how it is asked of them, and what changes it, is what the tests look at.
"""

from pathlib import Path
from typing import Any

from models.weights import store as weights
from tests.twins import letters

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
TEXT = letters.SHAPE | {
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}  # fmt: skip


def tokenizer(folder: Path, *further: str) -> Any:
    """Writes the tokenizer with `further` control tokens and a template that takes images."""
    from transformers import AutoTokenizer

    made = AutoTokenizer.from_pretrained(weights.ensure(DONOR))
    made.add_special_tokens({"additional_special_tokens": list(further)})
    made.chat_template = TEMPLATE
    made.save_pretrained(folder)
    return made


def save(model: Any, folder: Path) -> None:
    import torch

    model.to(torch.bfloat16).save_pretrained(folder)


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
    vision = Idefics3VisionConfig(num_attention_heads=2, image_size=56, patch_size=14, **letters.SHAPE)
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
