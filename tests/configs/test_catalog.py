"""The catalogue as shipped, and what its loader says of a stanza that is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

import configs
from configs import FOLDER, PROFILES, CatalogError, load
from graph import GraphArgs

CHAT = {
    "gemma-4-12b": ("default", 262144),
    "qwen3.8-27b": ("balanced", 131072),
    "qwen3.5-9b-deepseek-v4-flash": ("reasoning", 16384),
    "gemma-4-26b-a4b": ("vision", 262144),
    "qwen3.5-9b": ("default", None),
}
"""Spec 2: chat models with tier and context window, where it names one."""

STANZA = '[m]\nowned_by = "x"\ntier = "default"\ncontext_window = 10\n'
SERVING = '[m.serving.embedded]\nadapter = "models.chat:VllmChat"\nruntime = "m"\n'


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_loads(profile: str) -> None:
    assert load(profile).profile == profile


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_has_a_serve_config_file_that_the_graph_takes(profile: str) -> None:
    (app,) = yaml.safe_load((FOLDER / f"{profile}.yaml").read_text("utf-8"))["applications"]
    assert (app["import_path"], app["name"]) == ("graph:build", "parlance")
    assert GraphArgs(**app["args"]).profile == profile


@pytest.mark.parametrize("model_id", CHAT)
def test_chat_models_of_the_spec_are_known(model_id: str) -> None:
    tier, window = CHAT[model_id]
    model = load("embedded").chat[model_id]
    assert model.tier == tier
    assert window in (None, model.context_window)


def test_other_models_of_the_spec_are_known() -> None:
    catalog = load("embedded")
    assert catalog.embeddings["bge-m3"].dimensions == 1024
    assert catalog.embeddings["nomic-embed-code"].dimensions == 3584
    assert "bge-reranker-base" in catalog.rerank
    assert set(catalog.speech) == {"supertonic-3", "cosyvoice-3", "voxtral-mini-tts", "qwen3-tts"}
    assert set(catalog.transcription) == {"voxtral-mini-transcribe", "whisper-large-v3"}
    assert set(catalog.decisions) == {"decision-v1", "decision-v2"}


def test_embedded_sets_up_chat_embeddings_and_rerank() -> None:
    catalog = load("embedded")
    for models in (catalog.chat, catalog.embeddings, catalog.rerank):
        assert any(model.serving for model in models.values())


def test_every_price_of_what_is_set_up_is_above_zero() -> None:
    for model in load("embedded").set_up():
        assert model.price, model.id
        assert min(model.price.values()) > 0, model.id


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (STANZA.replace("context_window = 10", "context_window = -1"), "chat.toml [m] `context_window`"),
        (STANZA + "colour = 1\n", "chat.toml [m] `colour`"),
        (STANZA.replace("owned_by", "owner"), "chat.toml [m] `owned_by`"),
        (STANZA + SERVING + "wait_s = 0\n", "chat.toml [m.serving.embedded] `wait_s`"),
        (STANZA + SERVING.replace("models.chat:VllmChat", "nothing"), "chat.toml [m.serving.embedded] `adapter`"),
        (STANZA + SERVING.replace("embedded", "moon"), "chat.toml [m.serving]: there is no profile `moon`"),
        (STANZA + STANZA, "chat.toml:"),
        ("[m", "chat.toml:"),
    ],
)
def test_complaint_names_file_stanza_and_key(tmp_path: Path, text: str, complaint: str) -> None:
    for noun in configs.CATALOG_TYPES:
        (tmp_path / f"{noun}.toml").write_text(text if noun == "chat" else "")
    with pytest.raises(CatalogError) as caught:
        load("embedded", tmp_path)
    assert str(caught.value).startswith(complaint)


def test_stanza_of_another_profile_is_checked_too(tmp_path: Path) -> None:
    text = STANZA + SERVING.replace("embedded", "production") + "wait_s = 0\n"
    for noun in configs.CATALOG_TYPES:
        (tmp_path / f"{noun}.toml").write_text(text if noun == "chat" else "")
    with pytest.raises(CatalogError, match=r"m\.serving\.production"):
        load("embedded", tmp_path)


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("speech.toml", 'provider = "mistral"', 'provider = "other"', "provider `mistral`"),
        ("voices.toml", 'provider = "qwen"', 'provider = "nobody"', r"voices.toml \[rooom-f-01\] `provider`"),
        ("voices.toml", 'gender = "f"', 'gender = "x"', r"voices.toml \[F1\] `gender`"),
        ("sentences.toml", "\nzh = ", "\nxx = ", "no sentence for zh"),
    ],
)
def test_engines_voices_and_sentences_fit_together(
    tmp_path: Path, file: str, old: str, new: str, complaint: str
) -> None:
    shutil.copytree(configs.FOLDER / "catalog", tmp_path, dirs_exist_ok=True)
    text = (tmp_path / file).read_text("utf-8")
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new), "utf-8")
    with pytest.raises(CatalogError, match=complaint):
        load("embedded", tmp_path)


def test_unknown_profile_is_named() -> None:
    with pytest.raises(CatalogError, match="no profile `moon`; there are embedded"):
        load("moon")
