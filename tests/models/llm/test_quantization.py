"""Weights in 8 bits: what is turned computes the same, and what is rounded says nearly the same."""

from __future__ import annotations

import asyncio
import json
import logging
import tomllib
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest

from models.llm import engine, quantization
from models.llm.quantization import rotation, rounding
from tests.models.conftest import Fetched
from tests.twins import decoders

torch = pytest.importorskip("torch")

BFLOAT16 = {"dtype": "bfloat16"}
LOGGER = "parlance.models.llm.quantization"
TEXTS = (
    "The lighthouse keeper climbed the stairs every evening, lit the lamp, and wrote the weather into a thick book.",
    "Water freezes at zero degrees Celsius and boils at a hundred, at the pressure of the air at sea level.",
    "Bring your passport, two photographs and the form that you were sent to the office on the second floor.",
)
Make = Callable[[Path], Path]


def loaded(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def ignored(folder: Path) -> set[str]:
    """The products that a folder in 8 bits keeps in bfloat16."""
    return set(json.loads((folder / "config.json").read_text())["quantization_config"]["ignore"])


@pytest.mark.parametrize("size", [1, 32, 64, 576, 896, 1536])
def test_a_rotation_keeps_lengths_and_spreads_each_channel(size: int) -> None:
    turned = rotation.turned(torch.eye(size, dtype=torch.float64))
    assert torch.allclose(turned @ turned.T, torch.eye(size, dtype=torch.float64), atol=1e-12)
    assert turned.abs().max() <= (2 / size) ** 0.5 + 1e-12
    assert torch.equal(turned, rotation.turned(torch.eye(size, dtype=torch.float64)))


@pytest.mark.slow
@pytest.mark.timeout(1200)  # beside other work; the embedded model alone is measured for a minute
@pytest.mark.parametrize("name", ["smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct"])
def test_what_is_known_of_weights_is_what_is_measured_anew(name: str, fetched: Fetched, tmp_path: Path) -> None:
    """Without the hash of their file, the layers that stay are measured; they are those that the table has."""
    from transformers import AutoTokenizer

    folder = fetched(name)
    (sha256,) = json.loads((folder / "pins.json").read_text())["made_from"]
    known = tomllib.loads(quantization.SENSITIVE.read_text())[sha256]
    quantization.save(loaded(folder), AutoTokenizer.from_pretrained(folder), tmp_path / "int8")
    assert ignored(tmp_path / "int8") == {f"model.layers.{layer}.mlp.down_proj" for layer in known}


def test_sensitive_layers_of_known_weights_are_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two layers one is measured to be sensitive, and the table has the other."""
    from transformers import AutoTokenizer

    source, table = decoders.llama(tmp_path), tmp_path / "sensitive.toml"
    both = {f"model.layers.{layer}.mlp.down_proj" for layer in range(2)}
    (measured,) = ignored(decoders.int8(source, tmp_path / "measured"))
    (other,) = both - {measured}
    table.write_text(f"known = [{other.split('.')[2]}]")
    monkeypatch.setattr(quantization, "SENSITIVE", table)
    for sha256, expected in {"known": other, "unknown": measured}.items():
        quantization.save(loaded(source), AutoTokenizer.from_pretrained(source), tmp_path / sha256, sha256)
        assert ignored(tmp_path / sha256) == {expected}


@pytest.mark.parametrize("make", [decoders.llama, decoders.qwen2])
def test_a_turned_and_balanced_model_computes_the_same(make: Make, tmp_path: Path) -> None:
    model = loaded(make(tmp_path))
    tokens = torch.arange(100, 160)[None]
    with torch.no_grad():
        expected = model(tokens).logits
        rotation.turn(model)
        quantization.balance_with(model, inputs := quantization.inputs_of(model, [tokens]))
        assert torch.allclose(model(tokens).logits, expected, atol=1e-3, rtol=1e-3)
        for part, (given,) in quantization.inputs_of(model, [tokens]).items():
            assert torch.allclose(inputs[part][0], given, atol=1e-3, rtol=1e-3), "what comes now was not what is said"
    assert torch.equal(model.model.norm.weight, torch.ones_like(model.model.norm.weight))
    assert model.lm_head.weight is not model.model.embed_tokens.weight


def test_channels_that_stand_out_are_gone_after_turning(fetched: Fetched) -> None:
    """What the largest channel of the hidden state is to a typical one, in the embedded model."""

    def ratio(model: Any) -> float:
        tokens = torch.arange(1000, 1100)[None]
        hidden = model(tokens, output_hidden_states=True).hidden_states[15][0, 1:]
        return float((hidden.abs().amax(-1) / hidden.pow(2).mean(-1).sqrt()).mean())

    model = loaded(fetched("smollm2-135m-instruct"))
    with torch.no_grad():
        before = ratio(model)
        rotation.turn(model)
        assert ratio(model) < before / 2


def test_each_row_has_its_scale_and_what_is_sensitive_stays(tmp_path: Path) -> None:
    folder = decoders.int8(decoders.llama(tmp_path), tmp_path / "int8")
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    kept = {f"{name}.weight" for name in ignored(folder)}
    assert len(kept) == 1  # of two layers, a quarter at most, and at least one
    for name, tensor in tensors.items():
        if name.endswith("proj.weight") or name == "lm_head.weight":
            assert tensor.dtype == (torch.bfloat16 if name in kept else torch.int8), name
        if tensor.dtype == torch.int8:
            scale = tensors[f"{name}_scale"]
            assert scale.shape == (len(tensor), 1)
            assert tensor.abs().amax(1).ge(100).all()  # a channel that makes up for others may be the largest


def test_the_sensitive_layers_are_those_that_the_whole_model_shows(fetched: Fetched) -> None:
    """Only what lies behind a layer is computed again, without the keys of the pass before."""
    model, sample = loaded(fetched("smollm2-135m-instruct")), torch.arange(1000, 1064).view(2, 32)
    losses = []
    with torch.no_grad():
        expected = model(sample).logits.log_softmax(-1)
        for layer in model.model.layers:
            hook = layer.mlp.down_proj.register_forward_pre_hook(lambda _, inputs: (rounding.round_to_int8(inputs[0]),))
            losses.append(float((expected.exp() * (expected - model(sample).logits.log_softmax(-1))).sum()))
            hook.remove()
        sensitive = rounding.sensitive_layers(model, sample)
    worst = sorted(range(len(losses)), key=losses.__getitem__, reverse=True)
    assert 1 <= len(sensitive) <= len(losses) / 4 + 1
    assert sensitive == worst[: len(sensitive)]


def test_channels_make_up_for_each_other() -> None:
    """Where inputs go along with each other, what comes out is nearer than after plain rounding."""
    random = torch.Generator().manual_seed(3)
    inputs = torch.randn(400, 8, generator=random) @ torch.randn(8, 96, generator=random)
    weight = torch.randn(40, 96, generator=random)
    whole, scale = rounding.rounded(weight, rounding.spread_of(inputs))
    plain = rounding.round_to_int8(weight)

    def loss(rounded: Any) -> float:
        return float((inputs @ (rounded - weight).T).norm())

    assert whole.dtype == torch.int8
    assert loss(whole * scale) < loss(plain) / 2


@pytest.mark.parametrize(
    ("architecture", "width", "fits"),
    [
        ("LlamaForCausalLM", 64, True),
        ("Qwen2ForCausalLM", 128, True),
        ("LlamaForCausalLM", 96, False),
        ("Qwen3ForCausalLM", 64, False),
    ],
)
def test_only_known_decoders_are_turned(architecture: str, width: int, fits: bool) -> None:
    config = SimpleNamespace(architectures=[architecture], hidden_size=4 * width, num_attention_heads=4)
    assert quantization.fits(config, quantization.MOST_PARAMETERS) is fits
    assert not quantization.fits(config, quantization.MOST_PARAMETERS + 1)


def test_weights_in_8_bits_are_taken_where_they_are_and_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    features = {"avx512_vnni": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: features)
    with caplog.at_level(logging.INFO, LOGGER):
        assert quantization.fitting_folder(tmp_path, BFLOAT16, "cpu") == tmp_path
        assert "has no weights in 8 bits: delete that folder and run `make weights`" in caplog.text
        (tmp_path / "int8").mkdir()
        assert quantization.fitting_folder(tmp_path, BFLOAT16, "cpu") == tmp_path / "int8"
        caplog.clear()
        assert quantization.fitting_folder(tmp_path, {"dtype": "float32"}, "cpu") == tmp_path
        assert quantization.fitting_folder(tmp_path, BFLOAT16, "cuda") == tmp_path
        features.clear()
        assert quantization.fitting_folder(tmp_path, BFLOAT16, "cpu") == tmp_path
    assert caplog.text.count("no instructions for int8") == 3


async def likelihoods(folder: Path) -> list[float]:
    """The log-probability of each token of the texts, by vLLM itself."""
    from vllm.sampling_params import SamplingParams

    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
    arguments = {"enforce_eager": True, "dtype": "bfloat16", "kv_cache_memory_bytes": 1 << 26, "max_num_seqs": 4}
    spec = engine.EngineSpec(folder, 256, arguments, threads=2, quick_steps=False)
    llm = await asyncio.to_thread(engine.start, spec)
    figures = []
    try:
        for text in TEXTS:
            async for output in llm.generate(text, params, text):
                last = output
            steps = zip(last.prompt_token_ids[1:], last.prompt_logprobs[1:], strict=True)
            figures += [step[token].logprob for token, step in steps]
    finally:
        llm.shutdown()
    return figures


async def test_a_plain_vllm_reads_the_embedded_model_in_8_bits_alike(fetched: Fetched) -> None:
    pytest.importorskip("vllm")
    folder = fetched("smollm2-135m-instruct")
    expected = await likelihoods(folder)
    differences = [one - other for one, other in zip(await likelihoods(folder / "int8"), expected, strict=True)]
    assert fmean(map(abs, differences)) < 0.2
    assert abs(fmean(differences)) < 0.05


async def test_a_converted_gguf_holds_both_forms(fetched: Fetched) -> None:
    folder = fetched("smollm2-135m-instruct")
    assert (folder / "int8/model.safetensors").stat().st_size < 0.75 * (folder / "model.safetensors").stat().st_size
