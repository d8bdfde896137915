"""The short forward computes what vLLM's own computes, and leaves to it what it does not."""

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from operator import attrgetter
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import pytest

from models.llm import engine
from tests.models import tiny_models
from tests.models.conftest import Fetched
from tests.twins import decoders
from tests.waiting import WITHIN_S

Other = pytest.importorskip("torch").nn.Identity
"""A part that no decoder has."""
PROMPTS = [[(7 + 31 * index) % 40_000 for index in range(length)] for length in (2, 33, 90)]
TOKENS = 12
ARGUMENTS = {"enforce_eager": True, "max_num_seqs": 4, "kv_cache_memory_bytes": 1 << 26}
MAKERS = {"llama": decoders.llama, "qwen2": decoders.qwen2, "qwen3": tiny_models.thinker}
OWN = "vLLM's own forward: the decoder of Qwen3ForCausalLM is not one that is known"
LOGGER = "parlance.models.llm.vllm_internals.cpu"

Twin = Callable[[str], Path]


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    """The folder of a twin by its name; `-int8` behind it means its weights in eight bits."""
    pytest.importorskip("vllm")
    folder = tmp_path_factory.mktemp("decoders")

    def of(name: str) -> Path:
        place, (kind, _, bits) = folder / name, name.partition("-")
        if not place.exists():
            if bits:
                return decoders.int8(of(kind), place)
            place.mkdir()
            MAKERS[kind](place)
        return place

    return of


@asynccontextmanager
async def started(folder: Path, **spec: Any) -> AsyncIterator[Any]:
    arguments = ARGUMENTS | {"dtype": spec.pop("dtype", "float32")}
    llm = await asyncio.to_thread(engine.start, engine.EngineSpec(folder, 256, arguments, threads=2, **spec))
    try:
        yield llm
    finally:
        llm.shutdown(timeout=WITHIN_S)


async def read(llm: Any, prompts: list[list[int]], tokens: int) -> tuple[list[list[int]], list[float]]:
    """Each prompt with the `tokens` that follow it, and the log-probability of each of all those tokens."""
    from vllm.inputs import tokens_input
    from vllm.sampling_params import SamplingParams

    params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, logprobs=0, prompt_logprobs=0)

    async def answer(number: int, prompt: list[int]) -> tuple[list[int], list[float]]:
        async for output in llm.generate(tokens_input(prompt), params, f"{number} of {tokens}"):
            last = output
        text = prompt + list(last.outputs[0].token_ids)
        steps = [*last.prompt_logprobs[1:], *last.outputs[0].logprobs]
        return text, [step[token].logprob for step, token in zip(steps, text[1:], strict=True)]

    answers = await asyncio.gather(*(answer(number, prompt) for number, prompt in enumerate(prompts)))
    return [text for text, _ in answers], [figure for _, figures in answers for figure in figures]


async def differences(folder: Path, **spec: Any) -> list[float]:
    async with started(folder, **spec) as quick:
        texts, figures = await read(quick, PROMPTS, TOKENS)
    async with started(folder, quick_steps=False, **spec) as plain:
        _, expected = await read(plain, [text[:-1] for text in texts], 1)
    return [abs(figure - own) for figure, own in zip(figures, expected, strict=True)]


@pytest.mark.parametrize("name", ["llama", "qwen2"])
async def test_in_float32_every_token_is_as_likely_as_before_and_in_bfloat16_only_rounding_differs(
    twin: Twin, name: str
) -> None:
    assert max(await differences(twin(name))) < 1e-3
    assert mean(await differences(twin(name), dtype="bfloat16")) < 0.1


async def test_the_embedded_model_answers_as_before(fetched: Fetched) -> None:
    assert max(await differences(fetched("smollm2-135m-instruct"))) < 1e-3


@pytest.mark.parametrize("name", ["llama-int8", "qwen2-int8"])
async def test_in_int8_two_kernels_differ_by_rounding(twin: Twin, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without AMX, vLLM's own choice is another kernel. Activations near a step of eight bits fall to either side."""
    import torch

    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert mean(await differences(twin(name), dtype="bfloat16")) < 0.25


@pytest.mark.parametrize(("name", "way"), [("qwen2", "the short forward through 2 layers"), ("qwen3", OWN)])
async def test_the_log_says_which_way_is_taken(
    twin: Twin, name: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, LOGGER):
        async with started(twin(name)):
            pass
    assert said(caplog) == [f"steps take {way}"]


async def test_a_stanza_can_leave_steps_to_vllm(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    from vllm.model_executor.layers.activation import SiluAndMul

    with caplog.at_level(logging.INFO, LOGGER):
        async with started(twin("llama"), quick_steps=False) as own:
            decoder = decoder_of(own)
    assert said(caplog) == []
    assert "forward" not in vars(decoder)
    assert decoder.layers[0].mlp.act_fn._forward_method.__func__ is SiluAndMul.forward_cpu


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def decoder_of(llm: Any) -> Any:
    (decoder,) = llm.engine_core.collective_rpc("apply_model", None, (lambda model: model.model,))
    return decoder


@pytest.fixture(scope="module")
def quick(twin: Twin) -> Iterator[Any]:
    llm = engine.start(engine.EngineSpec(twin("llama"), 256, ARGUMENTS | {"dtype": "float32"}, threads=2))
    yield llm
    llm.shutdown(timeout=WITHIN_S)


OF_LAYERS = [
    ("self_attn.attn.sliding_window", 16, "attention slides"),
    ("self_attn.attn.impl.sliding_window", 16, "attention slides"),
    ("self_attn.attn.impl.sinks", object(), "attention has sinks"),
    ("self_attn.attn.impl.alibi_slopes", object(), "attention has slopes"),
    ("self_attn.attn.impl.logits_soft_cap", 30.0, "attention is capped"),
    ("self_attn.attn.attn_type", "encoder_only", "attention goes both ways"),
    ("self_attn.attn.kv_sharing_target_layer_name", "model.layers.0.self_attn.attn", "layers share a cache"),
    ("self_attn.attn.impl.is_fp8_kv_cache", True, "its cache is quantised"),
    ("self_attn.rotary_emb", Other(), "positions are of type Identity"),
    ("self_attn.qkv_proj", Other(), "a part is of type Identity"),
    ("mlp.down_proj", Other(), "a part is of type Identity"),
    ("mlp.act_fn", Other(), "its activation is not SiLU"),
    ("input_layernorm", Other(), "a part is of type Identity"),
]


def test_what_a_layer_does_besides_is_left_to_vllm(quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of LoRA, too: it takes the place of a product, and is of a type of its own."""
    from models.llm.vllm_internals.cpu import obstacles

    decoder, named = decoder_of(quick), []
    for path, value, _ in OF_LAYERS:
        parent, _, name = f"layers.1.{path}".rpartition(".")
        part = attrgetter(parent)(decoder)
        with monkeypatch.context() as patch:
            if isinstance(value, Other):
                patch.setitem(vars(part)["_modules"], name, value)
            else:
                patch.setattr(part, name, value)
            named.append(list(obstacles(decoder)))
        assert list(obstacles(decoder)) == []
    assert named == [[sentence] for *_, sentence in OF_LAYERS]


OF_SETUPS = [
    ("lora_config", object(), "it serves LoRA adapters"),
    ("speculative_config", object(), "it speculates"),
    ("kv_transfer_config", object(), "it hands its cache to others"),
    ("cache_config.cache_dtype", "fp8", "its cache is quantised"),
    ("model_config.enforce_eager", False, "it compiles"),
    ("parallel_config.world_size", 2, "it runs in several parts"),
]


def test_what_an_engine_is_set_up_to_do_besides_is_left_to_vllm(quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And hidden states of layers, and all steps on a processor without the operators."""
    from models.llm.vllm_internals import cpu

    named, config = [], copy.copy(quick.vllm_config)
    for path, value, _ in OF_SETUPS:
        parent, _, name = path.rpartition(".")
        with monkeypatch.context() as patch:
            patch.setattr(attrgetter(parent)(config) if parent else config, name, value)
            named.append(list(cpu.obstacles_of_setup(config)))
        assert list(cpu.obstacles_of_setup(config)) == []
    assert named == [[sentence] for *_, sentence in OF_SETUPS]
    decoder = decoder_of(quick)
    with monkeypatch.context() as patch:
        patch.setattr(decoder, "aux_hidden_state_layers", (1,))
        assert list(cpu.obstacles(decoder)) == ["hidden states of layers are wanted"]
    monkeypatch.setattr(cpu, "OPERATORS", (*cpu.OPERATORS, "of_another_processor"))
    assert list(cpu.obstacles_of_setup(quick.vllm_config)) == ["vLLM has no C++ for this processor"]


def test_products_that_the_kernel_cannot_make_are_left_to_vllm(quick: Any) -> None:
    import torch

    from models.llm.vllm_internals.steps import LANES, silu_and_mul

    layer = SimpleNamespace(forward_native=lambda x: x)
    for x in (torch.ones(1, 2 * (LANES - 1)), torch.ones(2 * LANES, 2).t()):
        assert silu_and_mul(layer, x) is x


def test_a_step_without_metadata_goes_vllms_way(quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from vllm.forward_context import set_forward_context

    forward = decoder_of(quick).forward
    monkeypatch.setattr(forward, "_original", lambda *arguments: arguments)
    tokens = torch.tensor([1, 2])
    with set_forward_context(None, quick.vllm_config):
        assert forward(tokens, tokens) == (tokens, tokens, None, None)
