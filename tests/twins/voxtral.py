"""A twin of Voxtral Mini: random weights of its true architecture, in the files of Mistral's format. 8 MB.

params.json, consolidated.safetensors and tekken.json have the published names, ranks and shapes but for their sizes:
Whisper's encoder with 128 mel bins, four of its frames to a token, an adapter, and a language model. What it writes
down is noise, and of the same sound always the same.

    python tests/twins/voxtral.py FOLDER
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

WIDTH, HIDDEN, HEADS, KEYS, HEAD, LAYERS = 64, 128, 4, 2, 32, 2
SOUND_WIDTH, SOUND_HIDDEN, SOUND_HEADS, SOUND_LAYERS = 64, 128, 2, 2
MELS, FRAMES, JOINED = 128, 1500, 4
SPECTROGRAM = {"num_mel_bins": MELS, "hop_length": 160, "window_size": 400}
SPECIAL = {
    0: "<unk>", 1: "<s>", 2: "</s>", 3: "[INST]", 4: "[/INST]", 5: "[AVAILABLE_TOOLS]", 6: "[/AVAILABLE_TOOLS]",
    7: "[TOOL_RESULTS]", 8: "[/TOOL_RESULTS]", 9: "[TOOL_CALLS]", 10: "[IMG]", 11: "<pad>", 12: "[IMG_BREAK]",
    13: "[IMG_END]", 14: "[PREFIX]", 15: "[MIDDLE]", 16: "[SUFFIX]", 17: "[SYSTEM_PROMPT]", 18: "[/SYSTEM_PROMPT]",
    19: "[TOOL_CONTENT]", 24: "[AUDIO]", 25: "[BEGIN_AUDIO]", 34: "[TRANSCRIBE]",
}  # fmt: skip
SPECIALS, END = 40, 2
LOUDNESS = {"0": 6.0, "2": 6.0, "wq": 6.0, "wk": 6.0, "tok_embeddings": 0.3}
"""Weights larger or smaller than the others, so that what is heard outweighs what was written before."""

TEXTS = 256
"""Ordinary tokens: one for each byte, printable or not."""


def make(folder: Path) -> Path:
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    (folder / "params.json").write_text(json.dumps(params()))
    (folder / "tekken.json").write_text(json.dumps(tokenizer()))
    save_file(weights(), folder / "consolidated.safetensors")
    return folder


def params() -> dict[str, Any]:
    encoder = {
        "audio_encoding_args": SPECTROGRAM | {"sampling_rate": 16_000}, "dim": SOUND_WIDTH, "n_layers": SOUND_LAYERS,
        "head_dim": SOUND_WIDTH // SOUND_HEADS, "hidden_dim": SOUND_HIDDEN, "n_heads": SOUND_HEADS,
        "vocab_size": 51_866, "max_source_positions": FRAMES,
    }  # fmt: skip
    whisper = {"encoder_args": encoder, "downsample_args": {"downsample_factor": JOINED}}
    return {
        "dim": WIDTH, "n_layers": LAYERS, "head_dim": HEAD, "hidden_dim": HIDDEN, "n_heads": HEADS, "n_kv_heads": KEYS,
        "rope_theta": 100_000_000.0, "norm_eps": 1e-05, "vocab_size": SPECIALS + TEXTS,
        "max_position_embeddings": 32_768, "multimodal": {"whisper_model_args": whisper},
    }  # fmt: skip


def tokenizer() -> dict[str, Any]:
    """Bytes, and the control tokens at their published ranks."""
    texts = [
        {"rank": byte, "token_bytes": base64.b64encode(bytes([byte])).decode(), "token_str": None}
        for byte in range(TEXTS)
    ]
    control = [
        {"rank": rank, "token_str": SPECIAL.get(rank, f"<SPECIAL_{rank}>"), "is_control": True}
        for rank in range(SPECIALS)
    ]
    config = {
        "pattern": r"\p{L}+|\p{N}|[^\s\p{L}\p{N}]+|\s+", "num_vocab_tokens": TEXTS, "version": "v7",
        "default_vocab_size": SPECIALS + TEXTS, "default_num_special_tokens": SPECIALS,
    }  # fmt: skip
    audio = {
        "sampling_rate": 16_000, "frame_rate": 12.5, "audio_encoding_config": SPECTROGRAM, "chunk_length_s": 30.0,
    }  # fmt: skip
    return {"config": config, "vocab": texts, "special_tokens": control, "audio": audio}


def weights() -> dict[str, torch.Tensor]:
    """All tensors in bfloat16, so that the sound matters for what is written: letters, and at times an end."""
    import torch

    drawn = torch.Generator().manual_seed(1)
    made = {}
    for name, shape in shapes().items():
        if name.endswith("norm.weight"):
            tensor = torch.ones(shape)
        else:
            tensor = torch.randn(shape, generator=drawn)
            if len(shape) > 1:
                tensor *= LOUDNESS.get(name.split(".")[-2], 1.5) / tensor[0].numel() ** 0.5
        made[name] = tensor.to(torch.bfloat16)
    written = torch.tensor([END, *(SPECIALS + ord(letter) for letter in " abcdefghijklmnopqrstuvwxyz")])
    others = torch.ones(SPECIALS + TEXTS, dtype=torch.bool).index_fill(0, written, False)
    made["output.weight"][others] = 0
    return made


def shapes() -> dict[str, tuple[int, ...]]:
    mm, tower = "mm_whisper_embeddings", "mm_whisper_embeddings.whisper_encoder"
    square = (SOUND_WIDTH, SOUND_WIDTH)
    sizes: dict[str, tuple[int, ...]] = {
        "norm": (WIDTH,),
        "output": (SPECIALS + TEXTS, WIDTH),
        f"{mm}.tok_embeddings": (SPECIALS + TEXTS, WIDTH),
        f"{mm}.audio_language_projection.0": (WIDTH, JOINED * SOUND_WIDTH),
        f"{mm}.audio_language_projection.2": (WIDTH, WIDTH),
    }
    text = {
        "attention.wq": (HEADS * HEAD, WIDTH), "attention.wk": (KEYS * HEAD, WIDTH), "ffn_norm": (WIDTH,),
        "attention.wv": (KEYS * HEAD, WIDTH), "attention.wo": (WIDTH, HEADS * HEAD), "attention_norm": (WIDTH,),
        "feed_forward.w1": (HIDDEN, WIDTH), "feed_forward.w2": (WIDTH, HIDDEN), "feed_forward.w3": (HIDDEN, WIDTH),
    }  # fmt: skip
    sizes |= {f"layers.{number}.{name}": shape for number in range(LAYERS) for name, shape in text.items()}
    sound = {
        "attention.wq": square, "attention.wv": square, "attention.wo": square, "ffn_norm": (SOUND_WIDTH,),
        "feed_forward.w1": (SOUND_HIDDEN, SOUND_WIDTH), "feed_forward.w2": (SOUND_WIDTH, SOUND_HIDDEN),
        "attention_norm": (SOUND_WIDTH,),
    }  # fmt: skip
    layers = [f"{tower}.transformer.layers.{number}" for number in range(SOUND_LAYERS)]
    # As Whisper's: biases everywhere but for the keys.
    sizes |= {f"{layer}.attention.wk": square for layer in layers}
    biased: dict[str, tuple[int, ...]] = {
        f"{tower}.conv_layers.0": (SOUND_WIDTH, MELS, 3),
        f"{tower}.conv_layers.1": (SOUND_WIDTH, SOUND_WIDTH, 3),
        f"{tower}.transformer.norm": (SOUND_WIDTH,),
    } | {f"{layer}.{name}": shape for layer in layers for name, shape in sound.items()}
    weights = {f"{name}.weight": shape for name, shape in (sizes | biased).items()}
    return weights | {f"{name}.bias": shape[:1] for name, shape in biased.items()}


if __name__ == "__main__":
    make(Path(sys.argv[1]))
