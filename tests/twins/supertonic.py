"""A twin of Supertonic 3: four small ONNX graphs with its inputs and outputs, its files, ten voices. 2 MB.

It hums instead of speaking: one tone a voice, for as long as the text needs.

    python tests/twins/supertonic.py FOLDER
"""

import json
import sys
import unicodedata
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SAMPLE_RATE, BASE_CHUNK, COMPRESS, LATENT = 44_100, 512, 6, 24
CHANNELS, BLOCK = LATENT * COMPRESS, BASE_CHUNK * COMPRESS
STYLE_TTL, STYLE_DP, TEXT = (1, 50, 256), (1, 8, 16), 256
SECONDS_PER_CHAR = 0.06

MEN_HZ = {"M1": 115, "M2": 86, "M3": 101, "M4": 129, "M5": 144}
WOMEN_HZ = {"F1": 172, "F2": 230, "F3": 201, "F4": 215, "F5": 187}
VOICES_HZ = MEN_HZ | WOMEN_HZ
"""Voices and about how high each hums; see `whole`."""

SCRIPTS = ("LATIN", "GREEK", "CYRILLIC", "ARABIC", "DEVANAGARI", "HANGUL", "HIRAGANA", "KATAKANA", "CJK", "COMBINING")
"""First words of the names of letters that the twin says; of the rest of Unicode it says ASCII and punctuation."""


def make(folder: Path) -> Path:
    (folder / "onnx").mkdir(parents=True)
    (folder / "voice_styles").mkdir()
    for name, graph in {
        "duration_predictor": duration_predictor(),
        "text_encoder": text_encoder(),
        "vector_estimator": vector_estimator(),
        "vocoder": vocoder(),
    }.items():
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, folder / "onnx" / f"{name}.onnx")
    sizes = {"ae": {"sample_rate": SAMPLE_RATE, "base_chunk_size": BASE_CHUNK}}
    sizes["ttl"] = {"chunk_compress_factor": COMPRESS, "latent_dim": LATENT}
    (folder / "onnx" / "tts.json").write_text(json.dumps(sizes))
    (folder / "onnx" / "unicode_indexer.json").write_text(json.dumps(indexer(), separators=(",", ":")))
    for channel, name in enumerate(VOICES_HZ):
        (folder / "voice_styles" / f"{name}.json").write_text(json.dumps(style(channel)))
    return folder


def indexer() -> list[int]:
    """Code point to number, -1 for what has none."""
    known = [code for code in range(0x10000) if is_known(chr(code))]
    numbers = dict(zip(known, range(len(known)), strict=True))
    return [numbers.get(code, -1) for code in range(0x10000)]


def is_known(char: str) -> bool:
    if char.isascii():
        return char.isprintable()
    kind = unicodedata.category(char)[0]
    return (kind in "LMN" and unicodedata.name(char, "").split(" ")[0] in SCRIPTS) or char in "،؛؟।。、！？…"


def style(channel: int) -> dict[str, dict[str, object]]:
    """A voice: a one at its channel. `style_dp` makes some voices a little slower."""
    ttl = np.zeros(STYLE_TTL, np.float32)
    ttl[0, 0, channel] = 1
    dp = np.full(STYLE_DP, channel / 100, np.float32)
    parts = {"style_ttl": ttl, "style_dp": dp}
    return {name: {"dims": list(value.shape), "data": value.tolist()} for name, value in parts.items()}


def duration_predictor() -> onnx.GraphProto:
    """Seconds [B]: a fixed time for each character of the text, longer by the mean of the style."""
    nodes = [
        helper.make_node("ReduceSum", ["text_mask", "last_axes"], ["length"], keepdims=0),
        helper.make_node("ReduceMean", ["style_dp"], ["mean"], axes=[1, 2], keepdims=0),
        helper.make_node("Add", ["mean", "one"], ["slowness"]),
        helper.make_node("Mul", ["length", "slowness"], ["slowed"]),
        helper.make_node("Mul", ["slowed", "per_char"], ["duration"]),
    ]
    inputs = [ints("text_ids", "B", "L"), floats("style_dp", "B", *STYLE_DP[1:]), floats("text_mask", "B", 1, "L")]
    held = [
        numpy_helper.from_array(np.array([1, 2]), "last_axes"),
        constant("one", 1),
        constant("per_char", SECONDS_PER_CHAR),
    ]
    return helper.make_graph(nodes, "duration_predictor", inputs, [floats("duration", "B")], held)


def text_encoder() -> onnx.GraphProto:
    """[B, TEXT, L]: the first row of the style, the same for each character."""
    nodes = [
        helper.make_node("Slice", ["style_ttl", "zero", "first", "rows"], ["row"]),  # [B, 1, TEXT]
        helper.make_node("Transpose", ["row"], ["column"], perm=[0, 2, 1]),
        helper.make_node("Mul", ["column", "text_mask"], ["text_emb"]),
    ]
    inputs = [ints("text_ids", "B", "L"), floats("style_ttl", "B", *STYLE_TTL[1:]), floats("text_mask", "B", 1, "L")]
    held = [numpy_helper.from_array(np.array([at]), name) for name, at in (("zero", 0), ("first", 1), ("rows", 1))]
    return helper.make_graph(nodes, "text_encoder", inputs, [floats("text_emb", "B", TEXT, "L")], held)


def vector_estimator() -> onnx.GraphProto:
    """[B, CHANNELS, N]: goes from noise to the voice's channel, in equal steps."""
    nodes = [
        helper.make_node("ReduceMax", ["text_emb"], ["voice"], axes=[2], keepdims=1),  # [B, TEXT, 1]
        helper.make_node("Slice", ["voice", "zero", "channels", "axis"], ["target"]),  # [B, CHANNELS, 1]
        helper.make_node("Sub", ["total_step", "current_step"], ["left"]),
        helper.make_node("Unsqueeze", ["left", "last_axes"], ["left_3"]),
        helper.make_node("Sub", ["target", "noisy_latent"], ["way"]),
        helper.make_node("Div", ["way", "left_3"], ["step"]),
        helper.make_node("Add", ["noisy_latent", "step"], ["stepped"]),
        helper.make_node("Mul", ["stepped", "latent_mask"], ["denoised_latent"]),
    ]
    inputs = [
        floats("noisy_latent", "B", CHANNELS, "N"), floats("text_emb", "B", TEXT, "L"),
        floats("style_ttl", "B", *STYLE_TTL[1:]), floats("text_mask", "B", 1, "L"), floats("latent_mask", "B", 1, "N"),
        floats("current_step", "B"), floats("total_step", "B"),
    ]  # fmt: skip
    held = [numpy_helper.from_array(np.array([at]), name) for name, at in (("zero", 0), ("channels", CHANNELS))]
    held += [numpy_helper.from_array(np.array(at), name) for name, at in (("axis", [1]), ("last_axes", [1, 2]))]
    return helper.make_graph(nodes, "vector_estimator", inputs, [floats("denoised_latent", "B", CHANNELS, "N")], held)


def vocoder() -> onnx.GraphProto:
    """[B, N * BLOCK]: each channel of a voice is a tone; blocks join without a break."""
    times = np.arange(BLOCK) / SAMPLE_RATE
    tones = np.zeros((CHANNELS, BLOCK), np.float32)
    for channel, f0_hz in enumerate(VOICES_HZ.values()):
        tones[channel] = 0.4 * np.sin(2 * np.pi * whole(f0_hz) * times)
    nodes = [
        helper.make_node("Transpose", ["latent"], ["blocks"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["blocks", "tones"], ["waves"]),
        helper.make_node("Reshape", ["waves", "flat"], ["wav"]),
    ]
    held = [numpy_helper.from_array(tones, "tones"), numpy_helper.from_array(np.array([0, -1]), "flat")]
    return helper.make_graph(nodes, "vocoder", [floats("latent", "B", CHANNELS, "N")], [floats("wav", "B", "T")], held)


def whole(f0_hz: float) -> float:
    """The nearest pitch that a block holds a whole number of times: multiples of 14.4 Hz."""
    return round(f0_hz * BLOCK / SAMPLE_RATE) * SAMPLE_RATE / BLOCK


def floats(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def ints(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT64, shape)


def constant(name: str, value: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(value, np.float32), name)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
