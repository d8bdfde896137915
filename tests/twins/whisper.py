"""A twin of Whisper large-v3: its 128 bands, 100 languages and tokens of time, one layer, no knowledge. 2 MB.

It is made as the real one is published: by transformers, and CTranslate2's own converter.

    python tests/twins/whisper.py FOLDER
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

BANDS, WIDTH, WORDS = 128, 64, 744
SPECIAL_BEFORE = ("<|endoftext|>", "<|startoftranscript|>")
SPECIAL_AFTER = (
    "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>",
)  # fmt: skip
TIMES = 1501
"""From 0.00 to 30.00 s."""


def make(folder: Path, seed: int = 0) -> Path:
    import torch
    from ctranslate2.converters import TransformersConverter
    from transformers import PreTrainedTokenizerFast, WhisperFeatureExtractor, WhisperForConditionalGeneration

    folder.parent.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    words = tokenizer()
    with tempfile.TemporaryDirectory() as spool:
        model = WhisperForConditionalGeneration(shape(words))
        with torch.no_grad():  # words are likelier than marks
            model.get_output_embeddings().weight[: words.token_to_id("")] *= 10
        model.generation_config.alignment_heads = [[0, 0], [0, 1]]
        model.save_pretrained(spool)
        WhisperFeatureExtractor(feature_size=BANDS).save_pretrained(spool)
        end = "<|endoftext|>"
        PreTrainedTokenizerFast(tokenizer_object=words, bos_token=end, unk_token=end, pad_token=end).save_pretrained(
            spool
        )
        words.save(f"{spool}/tokenizer.json")
        converter = TransformersConverter(spool, copy_files=["tokenizer.json", "preprocessor_config.json"])
        converter.convert(str(folder))
    # The converter looks for them where transformers 5 does not write them.
    config = json.loads((folder / "config.json").read_text())
    config["lang_ids"] = [words.token_to_id(f"<|{code}|>") for code in languages()]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def languages() -> tuple[str, ...]:
    from faster_whisper.tokenizer import _LANGUAGE_CODES

    return _LANGUAGE_CODES


def tokenizer() -> Any:
    """Bytes, made-up words, and all special tokens of large-v3 in their order."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {char: number for number, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for number in range(len(vocabulary), len(vocabulary) + WORDS):
        vocabulary[f"Ġw{number}"] = number
    vocabulary[""] = len(vocabulary)  # CTranslate2 takes a model as multilingual only if it has this one
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*SPECIAL_BEFORE, *(f"<|{code}|>" for code in languages()), *SPECIAL_AFTER])
    made.add_tokens([AddedToken(f"<|{at * 0.02:.2f}|>", special=False, normalized=False) for at in range(TIMES)])
    return made


def shape(words: Any) -> Any:
    from transformers import WhisperConfig

    end = words.token_to_id("<|endoftext|>")
    return WhisperConfig(
        vocab_size=words.get_vocab_size(), num_mel_bins=BANDS, d_model=WIDTH, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=WIDTH, decoder_ffn_dim=WIDTH,
        pad_token_id=end, bos_token_id=end, eos_token_id=end,
        decoder_start_token_id=words.token_to_id("<|startoftranscript|>"),
        suppress_tokens=[], begin_suppress_tokens=[],
    )  # fmt: skip


if __name__ == "__main__":
    make(Path(sys.argv[1]))
