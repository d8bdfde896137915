"""Weights in 8 bits: what is turned computes the same, what is rounded says nearly the same; and files of GGUF."""

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from models import cpu
from models.llm import engine, quantization
from models.llm.quantization import rotation
from tests.models.conftest import Fetched
from tests.twins import decoders
from tests.waiting import WITHIN_S

torch = pytest.importorskip("torch")

LOGGER = "parlance.models.llm.quantization"
TEXTS = (
    "The lighthouse keeper climbed the stairs every evening, lit the lamp, and wrote the weather into a thick book.",
    "Water freezes at zero degrees Celsius and boils at a hundred, at the pressure of the air at sea level.",
    "Bring your passport, two photographs and the form that you were sent to the office on the second floor.",
)
Make = Callable[[Path], Path]


def loaded(folder: Path, **changes: int) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **changes)


def test_a_rotation_keeps_lengths_and_spreads_each_channel() -> None:
    for size in (1, 32, 64, 576, 896, 1536):
        one = torch.eye(size, dtype=torch.float64)
        turned = rotation.turned(one)
        assert torch.allclose(turned @ turned.T, one, atol=1e-12)
        assert turned.abs().max() <= (2 / size) ** 0.5 + 1e-12
        assert torch.equal(turned, rotation.turned(one))
    for size in (1, 96, 256, 1280, 1536):  # a step turns its inputs in blocks
        one = torch.eye(size, dtype=torch.float64)
        turned = rotation.InputTurn(size, torch.float64)(one)
        assert torch.allclose(turned @ turned.T, one, atol=1e-12)
        assert turned.count_nonzero(1).eq(min(size & -size, rotation.BLOCK)).all()


@pytest.mark.parametrize("make", [decoders.llama, decoders.qwen2])
def test_a_turned_model_computes_the_same(make: Make, tmp_path: Path) -> None:
    model = loaded(make(tmp_path))
    tokens = torch.arange(100, 160)[None]
    with torch.no_grad():
        expected = model(tokens).logits
        turn(model)
        assert torch.allclose(model(tokens).logits, expected, atol=1e-3, rtol=1e-3)


def turn(model: Any) -> None:
    """Puts the weights that `model` would be rounded from in their places, and turns the inputs of `down_proj`."""
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    with torch.no_grad():
        for name, tensor in list(rotation.turned_weights(model)):
            model.get_parameter(name).copy_(tensor)
    for layer in model.model.layers:
        step = rotation.InputTurn(layer.mlp.down_proj.in_features, torch.float32)
        layer.mlp.down_proj.register_forward_pre_hook(lambda _part, inputs, step=step: (step(inputs[0][0])[None],))


def test_channels_that_stand_out_are_gone_after_turning(fetched: Fetched) -> None:
    def ratio(model: Any) -> float:
        tokens = torch.arange(1000, 1100)[None]
        hidden = model(tokens, output_hidden_states=True).hidden_states[15][0, 1:]
        return float((hidden.abs().amax(-1) / hidden.pow(2).mean(-1).sqrt()).mean())

    model = loaded(fetched("smollm2-135m-instruct"), num_hidden_layers=16)
    with torch.no_grad():
        before = ratio(model)
        turn(model)
        assert ratio(model) < before / 2


def test_each_row_of_each_product_has_its_scale(tmp_path: Path) -> None:
    folder = decoders.int8(decoders.llama(tmp_path), tmp_path / "int8")
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    assert quantization.turned_inputs(folder) == {"down_proj": rotation.BLOCK}
    for name, tensor in tensors.items():
        if name.endswith("proj.weight") or name == "lm_head.weight":
            assert tensor.dtype == torch.int8, name
            assert tensors[f"{name}_scale"].shape == (len(tensor), 1)
            assert tensor.abs().amax(1).eq(127).all()
        else:
            assert tensor.dtype == (torch.float32 if name.endswith("_scale") else torch.bfloat16)


def test_only_known_decoders_are_turned() -> None:
    for architecture, width, fits in (
        ("LlamaForCausalLM", 64, True),
        ("Qwen2ForCausalLM", 128, True),
        ("LlamaForCausalLM", 96, False),
        ("Qwen3ForCausalLM", 64, False),
    ):
        config = SimpleNamespace(architectures=[architecture], hidden_size=4 * width, num_attention_heads=4)
        assert quantization.fits(config, quantization.MOST_PARAMETERS) is fits
        assert not quantization.fits(config, quantization.MOST_PARAMETERS + 1)


SGL = {"avx512_vnni": True, "avx512_bf16": True, "avx2": True, "fma3": True}


KERNELS = [
    (SGL, "bfloat16", "cpu", "sgl"),
    (SGL, "float32", "cpu", "fbgemm"),
    (SGL | {"avx512_bf16": False}, "bfloat16", "cpu", None),
    ({"avx2": True, "fma3": True}, "float32", "cpu", "fbgemm"),
    ({"avx2": True}, "float32", "cpu", None),
    (SGL, "float16", "cpu", None),
    (SGL, "bfloat16", "cuda", None),
]


def test_the_kernel_for_8_bits_is_one_that_was_measured_on_such_a_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quantized = tmp_path / "int8"
    quantized.mkdir()
    caplog.set_level(logging.INFO, LOGGER)
    for features, dtype, device, kernel in KERNELS:
        caplog.clear()
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda features=features: features)
        assert cpu.int8_kernel(device, dtype) == kernel, (features, dtype)
        (quantized / "config.json").write_text("{}")
        assert quantization.fitting_folder(tmp_path, {"dtype": dtype}, device) == tmp_path
        (quantized / "config.json").write_text(json.dumps({quantization.TURNS: {"down_proj": 256}}))
        fitting = quantization.fitting_folder(tmp_path, {"dtype": dtype}, device)
        assert fitting == (quantized if kernel else tmp_path), (features, dtype)
        assert caplog.text.count("no kernel for 8 bits") == (0 if kernel else 2)
        assert caplog.text.count("delete that folder and run `make weights`") == (1 if kernel else 0)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_product_in_8_bits_rounds_each_row_by_its_own_largest(rows: int, has_bias: bool) -> None:
    """A row of zeros, and one that is a thousand times as large as the others, change nothing for these."""
    int8 = pytest.importorskip("models.llm.vllm_internals.int8")
    random = torch.Generator().manual_seed(5)
    weight, scale = quantization.rounded(torch.randn(48, 576, generator=random))
    x, bias = torch.randn(rows + 2, 576, generator=random), torch.randn(48, generator=random) if has_bias else None
    x[rows], x[rows + 1] = 0, 1000 * x[0]
    expected = torch.nn.functional.linear(x, weight * scale, bias)
    product = int8.Int8Product(weight, scale)(x, bias)
    assert ((product - expected).norm(dim=1) < 0.03 * (x @ (weight * scale).T).norm(dim=1) + 1e-6).all()


async def likelihoods(folder: Path, dtype: str, quick: bool) -> list[float]:
    from vllm.sampling_params import SamplingParams

    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
    arguments = {"enforce_eager": True, "dtype": dtype, "kv_cache_memory_bytes": 1 << 26, "max_num_seqs": 4}
    spec = engine.EngineSpec(folder, 256, arguments, threads=2, quick_steps=quick)
    llm = await asyncio.to_thread(engine.start, spec)
    figures = []
    try:
        for text in TEXTS:
            async for output in llm.generate(text, params, text):
                last = output
            steps = zip(last.prompt_token_ids[1:], last.prompt_logprobs[1:], strict=True)
            figures += [step[token].logprob for token, step in steps]
    finally:
        llm.shutdown(timeout=WITHIN_S)
    return figures


@pytest.fixture(scope="module")
def rounded(fetched: Fetched, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoders.int8(fetched("smollm2-135m-instruct"), tmp_path_factory.mktemp("rounded") / "int8")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("quick", [True, False])
async def test_the_embedded_model_in_8_bits_reads_alike(
    fetched: Fetched, request: pytest.FixtureRequest, dtype: str, quick: bool
) -> None:
    pytest.importorskip("vllm")
    if cpu.int8_kernel("cpu", dtype) is None:
        pytest.skip(f"this processor has no kernel for 8 bits beside {dtype}")
    folder = fetched("smollm2-135m-instruct")
    assert (folder / "int8/model.safetensors").stat().st_size < 0.75 * (folder / "model.safetensors").stat().st_size
    expected = await likelihoods(folder, dtype, quick)
    given = await likelihoods(request.getfixturevalue("rounded"), dtype, quick)
    differences = [one - other for one, other in zip(given, expected, strict=True)]
    assert fmean(map(abs, differences)) < 0.2
    assert abs(fmean(differences)) < 0.05


# GGUF, read as the package `gguf` reads it, and faster


gguf = pytest.importorskip("gguf")

from models.llm.gguf import ROWS, FastReader, dequantized  # noqa: E402

GGUF_TOKENS = ["", "a", "Ġgrün", "日本", "\n" * 300]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "toy.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_string("general.name", "toy")
    writer.add_token_list(GGUF_TOKENS)
    writer.add_token_scores([0.5, -1.0, 2.0, 0.0, 1e-7])
    writer.add_token_types([1, 2, 3, 1, 1])
    writer.add_array("toy.flags", [True, False])
    writer.add_array("toy.empty", [""])
    values = np.random.default_rng(0).standard_normal((2 * ROWS + 5, 64), np.float32)
    for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q5_0, gguf.GGMLQuantizationType.Q4_1):
        writer.add_tensor(kind.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.add_tensor("norm", values[0])
    writer.add_tensor("plain", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def plain(reader: Any) -> dict[str, Any]:
    return {
        name: (field.types, [bytes(field.parts[index]) for index in field.data])
        for name, field in reader.fields.items()
    }


def test_fields_are_those_that_gguf_reads(file: Path) -> None:
    fast = plain(FastReader(file))
    assert fast == plain(gguf.GGUFReader(file))
    assert [bytes(token).decode() for token in fast["tokenizer.ggml.tokens"][1]] == GGUF_TOKENS


def test_tensors_are_those_that_gguf_dequantises(file: Path) -> None:
    for ours, theirs in zip(FastReader(file).tensors, gguf.GGUFReader(file).tensors, strict=True):
        expected = gguf.quants.dequantize(theirs.data, theirs.tensor_type)
        assert np.array_equal(dequantized(ours.data, ours.tensor_type), expected), ours.name
