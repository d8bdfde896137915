"""The catalogue of production: every model of the spec, and what can be known of it without a GPU."""

import ast
import importlib.util
from pathlib import Path

import pytest

import configs
from autoscaling.deployment import deployment_options
from contract.models import describe
from contract.transcription.request import TranscriptionRequest, plan
from models.options import check
from models.weights.stanzas import repositories
from models.weights.store import manifest
from tests.contract.bodies import refusal

PRODUCTION = configs.load("production")
SPEC = {
    "chat": {"gemma-4-12b", "qwen3.8-27b", "qwen3.5-9b-deepseek-v4-flash", "gemma-4-26b-a4b", "qwen3.5-9b"},
    "embeddings": {"bge-m3", "nomic-embed-code"},
    "rerank": {"bge-reranker-base"},
    "speech": {"supertonic-3", "cosyvoice-3", "voxtral-mini-tts", "qwen3-tts"},
    "transcription": {"voxtral-mini-transcribe", "whisper-large-v3"},
    "voice_design": {"qwen3-tts"},
    "decisions": {"decision-v1", "decision-v2"},
}
"""Every model that the API promises."""

CHATS = [model for model in PRODUCTION.chat.values() if model.serving]


def registered(registry: str) -> set[str]:
    """Names of parsers in the installed vLLM, read off its source: importing it takes ten seconds."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("vLLM is not installed")
    folder, table = {
        "tool": ("tool_parsers", "_TOOL_PARSERS_TO_REGISTER"),
        "reasoning": ("reasoning", "_REASONING_PARSERS_TO_REGISTER"),
    }[registry]
    source = Path(spec.submodule_search_locations[0]) / folder / "__init__.py"
    for part in ast.parse(source.read_text("utf-8")).body:
        if isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == table:
            return set(ast.literal_eval(part.value))
    raise AssertionError(f"vLLM keeps its parsers elsewhere by now: {source}")


def test_every_model_of_the_spec_is_set_up() -> None:
    found = {noun: {model.id for model in PRODUCTION.deployed() if model.noun == noun} for noun in SPEC}
    assert found == SPEC


def test_a_stanza_is_complete_and_its_weights_come_from_somewhere(tmp_path: Path) -> None:
    stored = repositories(tmp_path)
    known = {None, *manifest(tmp_path), *stored, "fun-cosyvoice3"}  # converted by the operator: ADR 9
    for model in PRODUCTION.deployed():
        assert model.serving
        assert all((model.description, model.display_name, model.price, model.runtime_license)), model.id
        check(model)
        deployment_options(model)
        assert model.serving.weights in known, model.id
        wanted = stored.get(model.serving.weights or "")
        assert wanted is None or wanted.licence == model.runtime_license, model.id


def test_the_installed_vllm_has_the_parsers() -> None:
    models = PRODUCTION.chat.values()
    assert {model.tool_parser for model in models} <= registered("tool") | {None}
    assert {model.reasoning_parser for model in models} <= registered("reasoning") | {None}


def test_each_family_has_its_parsers() -> None:
    parsers = {model.id: (model.tool_parser, model.reasoning_parser) for model in CHATS}
    assert parsers == {
        id: ("gemma4", "gemma4") if id.startswith("gemma-4") else ("qwen3_coder", "qwen3") for id in SPEC["chat"]
    }


def test_what_does_not_see_does_not_load_the_part_that_sees() -> None:
    for model in CHATS:
        assert model.serving
        assert model.vision is not model.serving.options["engine"].get("language_model_only", False), model.id


def test_engines_on_a_gpu_run_in_a_process_of_their_own_and_share_it_by_stated_amounts() -> None:
    for model in PRODUCTION.deployed():
        if model.serving and (engine := model.serving.options.get("engine")):
            gpus = model.serving.deployment["ray_actor_options"]["num_gpus"]
            assert model.serving.options["engine_process"], model.id
            assert engine["gpu_memory_utilization"] <= gpus, model.id
            assert gpus == 1 or "kv_cache_memory_bytes" in engine, model.id


def test_every_language_of_the_provider_has_a_voice() -> None:
    model = PRODUCTION.speech["voxtral-mini-tts"]
    assert model.serving
    assert model.serving.options["default_voices"].keys() == set(model.languages)


def test_a_voice_without_a_recording_is_not_there() -> None:
    mistral, qwen = PRODUCTION.speech["voxtral-mini-tts"], PRODUCTION.speech["qwen3-tts"]
    assert not mistral.has_voice("bib-f-20")
    assert qwen.has_voice("rooom-f-01")
    assert PRODUCTION.speech["supertonic-3"].has_voice("M1")
    assert configs.load("embedded").speech["voxtral-mini-tts"].has_voice("bib-f-20")
    assert not configs.load("twins").speech["qwen3-tts"].has_voice("rooom-f-01")


def test_both_decision_models_see_and_say_how_they_are_read() -> None:
    assert {model.runtime_via for model in PRODUCTION.decisions.values()} == {"label-reads"}
    assert all(model.reads_images for model in PRODUCTION.decisions.values())
    assert configs.load("embedded").decisions["decision-v1"].runtime_via == "embedding-similarity"


def test_the_default_transcriber_says_what_it_cannot_do_before_it_is_asked() -> None:
    model = PRODUCTION.transcription["voxtral-mini-transcribe"]
    limits = describe(model)["limits"]
    assert (limits["timestamp_granularities"], limits["context_terms"]) == (["segment"], 0)
    words = TranscriptionRequest(timestamp_granularities="word", response_format="verbose_json")
    assert not plan(words, model).words
    assert refusal(plan, TranscriptionRequest(context_bias=["Ray"]), model).param == "context_bias"
