"""Qwen3-TTS with tiny random weights, in the folder that its loader reads: `python tests/twins/qwen.py FOLDER VARIANT`.

Every part is there and is of its true class: talker, code predictor, speaker encoder, the 12 Hz codec's encoder and
decoder, and a tokenizer. Only sizes differ. What it says is noise. Runs in the environment of Qwen3-TTS.

VARIANT is `base` or `voice_design`.
"""

import json
import sys
from pathlib import Path
from typing import Any

SIZE = 32
CODES = 32
GROUPS = 4
"""Codebooks of a frame; the true model has 16."""

SPECIAL = CODES
"""First id of the talker's control codes. The loader takes the last 1024 ids of its vocabulary for those."""

LANGUAGES = (
    *("chinese", "english", "german", "italian", "portuguese"),
    *("spanish", "japanese", "korean", "french", "russian"),
)
TEXTS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>")
LAYERS = {"hidden_size": SIZE, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}


def make(folder: Path, variant: str) -> None:
    import torch
    from qwen_tts.core.models import Qwen3TTSConfig, Qwen3TTSForConditionalGeneration

    torch.manual_seed(1)
    (folder / "speech_tokenizer").mkdir(parents=True)
    ids = write_tokenizer(folder)
    config = {
        "model_type": "qwen3_tts", "architectures": ["Qwen3TTSForConditionalGeneration"],
        "tokenizer_type": "qwen3_tts_tokenizer_12hz", "tts_model_size": "1b7", "tts_model_type": variant,
        "im_start_token_id": ids["<|im_start|>"], "im_end_token_id": ids["<|im_end|>"],
        "tts_pad_token_id": ids["<tts_pad>"], "tts_bos_token_id": ids["<tts_text_bos>"],
        "tts_eos_token_id": ids["<tts_text_eod>"], "talker_config": talker(len(ids)),
        "speaker_encoder_config": {
            "enc_dim": SIZE, "enc_channels": [16, 16, 16, 16, 48], "enc_attention_channels": 8, "enc_res2net_scale": 2,
            "enc_se_channels": 8,
        },
    }  # fmt: skip
    _save(Qwen3TTSForConditionalGeneration(Qwen3TTSConfig(**config)), folder, config)
    _json(folder / "generation_config.json", {"do_sample": True, "temperature": 0.9, "max_new_tokens": 24})
    codec(folder / "speech_tokenizer")


def talker(texts: int) -> dict[str, Any]:
    """The language model that reads text and writes the first code of each frame, and its code predictor."""
    names = ("pad", "bos", "eos_token", "think", "nothink", "think_bos", "think_eos")
    control = {f"codec_{name}_id": SPECIAL + index for index, name in enumerate(names)}
    heads = {"num_key_value_heads": 1, "head_dim": 16, "num_code_groups": GROUPS}
    languages = {name: SPECIAL + 20 + index for index, name in enumerate(LANGUAGES)}
    return LAYERS | heads | control | {
        "vocab_size": CODES + 1024, "text_vocab_size": texts, "text_hidden_size": SIZE, "spk_id": {},
        "rope_scaling": {"rope_type": "default", "mrope_section": [4, 2, 2], "interleaved": True},
        "codec_language_id": languages, "spk_is_dialect": {},
        "code_predictor_config": LAYERS | heads | {"vocab_size": CODES},
    }  # fmt: skip


def codec(folder: Path) -> None:
    """The 12 Hz tokenizer: 1920 samples of 24 kHz become a frame of codes, and codes become samples."""
    from qwen_tts.core import Qwen3TTSTokenizerV2Config, Qwen3TTSTokenizerV2Model

    shared = LAYERS | {
        "num_key_value_heads": 2, "num_quantizers": GROUPS, "codebook_size": CODES, "codebook_dim": 16,
    }  # fmt: skip
    encoder = shared | {
        "num_filters": 4, "upsample_groups": SIZE, "num_semantic_quantizers": 1, "upsampling_ratios": [8, 6, 5, 4],
        "vector_quantization_hidden_dimension": 16, "frame_rate": 12.5, "sampling_rate": 24_000,
        "use_causal_conv": True,
    }  # fmt: skip
    decoder = shared | {
        "head_dim": 16, "latent_dim": SIZE, "decoder_dim": 32, "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
    }  # fmt: skip
    config = {
        "model_type": "qwen3_tts_tokenizer_12hz", "architectures": ["Qwen3TTSTokenizerV2Model"],
        "encoder_valid_num_quantizers": GROUPS, "encoder_config": encoder, "decoder_config": decoder,
    }  # fmt: skip
    _save(Qwen3TTSTokenizerV2Model(Qwen3TTSTokenizerV2Config(**config)), folder, config)
    features = {"feature_extractor_type": "EncodecFeatureExtractor", "feature_size": 1, "sampling_rate": 24_000}
    _json(folder / "preprocessor_config.json", {**features, "padding_value": 0.0, "return_attention_mask": True})


def write_tokenizer(folder: Path) -> dict[str, int]:
    """One of bytes that knows one word, `assistant`: the model counts on its prompt's head being three tokens."""
    from transformers.models.gpt2.tokenization_gpt2 import bytes_to_unicode

    word = "assistant"
    merges = [(word[:end], word[end]) for end in range(1, len(word))]
    vocabulary = [*bytes_to_unicode().values(), *("".join(pair) for pair in merges)]
    ids = {token: index for index, token in enumerate(vocabulary)}
    control = {str(len(ids) + index): text for index, text in enumerate(TEXTS)}
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(pair) for pair in merges) + "\n")
    _json(folder / "vocab.json", ids)
    tokens = {id: {"content": text, "special": True} for id, text in control.items()}
    settings = {
        "tokenizer_class": "Qwen2Tokenizer", "processor_class": "Qwen3TTSProcessor", "added_tokens_decoder": tokens,
        "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None, "model_max_length": 4096,
    }  # fmt: skip
    _json(folder / "tokenizer_config.json", settings)
    return ids | {text: int(id) for id, text in control.items()}


def _save(network: Any, folder: Path, config: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    state = {name: loud(name, tensor).contiguous() for name, tensor in network.state_dict().items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    _json(folder / "config.json", config)


def loud(name: str, tensor: Any) -> Any:
    """Weights far from zero, so that everything matters for what comes out; codebooks start as zeros."""
    import torch

    if name.endswith(("embed_sum", "embedding_sum")) or "embedding" in name:
        return torch.randn_like(tensor)
    if tensor.ndim > 1:
        return torch.randn_like(tensor) * (1.5 / tensor[0].numel() ** 0.5)
    return tensor.clone()


def _json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2])
