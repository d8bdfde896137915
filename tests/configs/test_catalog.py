"""The catalogue as shipped, and what its loader says of a stanza that is wrong."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from configs import FOLDER, PROFILES, CatalogError, load, profiles
from contract.catalog import CATALOG_TYPES
from contract.models import describe
from graph import GraphArgs

CHAT = {
    "gemma-4-12b": ("default", 262144),
    "qwen3.8-27b": ("balanced", 131072),
    "qwen3.5-9b-deepseek-v4-flash": ("reasoning", 16384),
    "gemma-4-26b-a4b": ("vision", 262144),
    "qwen3.5-9b": ("default", None),
}
"""The promised chat models, each with its tier and, where promised, its context window."""

STANZA = '[m]\nowned_by = "x"\ntier = "default"\ncontext_window = 10\n'
SERVING = '[m.serving.embedded]\nadapter = "models.chat:VllmChat"\nruntime = "m"\n'


def edited(folder: Path, file: str, *changes: tuple[str, str]) -> Path:
    """The catalogue as shipped, copied to `folder` and changed in one file."""
    shutil.copytree(FOLDER / "catalog", folder, dirs_exist_ok=True)
    text = (folder / file).read_text("utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    (folder / file).write_text(text, "utf-8")
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(CatalogError) as caught:
        load("embedded", folder)
    return str(caught.value)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_loads_and_its_serve_config_file_says_who_runs_it_where(profile: str) -> None:
    assert load(profile).profile == profile
    (app,) = yaml.safe_load((FOLDER / f"{profile}.yaml").read_text("utf-8"))["applications"]
    assert (app["import_path"], app["name"]) == ("graph:build", "parlance")
    assert {"operator", "country"} <= app["args"].keys()
    assert GraphArgs.model_validate(app["args"]).profile == profile


def test_a_profile_is_a_serve_config_file(tmp_path: Path) -> None:
    assert profiles() == PROFILES == ("cpu", "embedded", "gpu", "production", "twins")
    for name in ("mine.yaml", "another.yaml", "ray.env"):
        (tmp_path / name).touch()
    assert profiles(tmp_path) == ("another", "mine")


@pytest.mark.parametrize("model_id", CHAT)
def test_chat_models_of_the_spec_are_known(model_id: str) -> None:
    tier, window = CHAT[model_id]
    model = load("embedded").chat[model_id]
    assert model.tier == tier
    assert window in (None, model.context_window)


def test_vectors_have_the_dimensions_of_the_spec() -> None:
    catalog = load("embedded")
    assert catalog.embeddings["bge-m3"].dimensions == 1024
    assert catalog.embeddings["nomic-embed-code"].dimensions == 3584


def test_embedded_sets_up_chat_embeddings_and_rerank() -> None:
    catalog = load("embedded")
    for models in (catalog.chat, catalog.embeddings, catalog.rerank):
        assert any(model.serving for model in models.values())


def test_every_price_of_what_is_set_up_is_above_zero() -> None:
    for model in load("embedded").deployed():
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
        (STANZA + SERVING + "cpus = 1\n", "chat.toml [m.serving.embedded] `cpus`"),
        (STANZA + SERVING + "deployment = 1\n", "chat.toml [m.serving.embedded] `deployment`"),
        (STANZA + "serving = 1\n", "chat.toml `m.serving` must be a table"),
        (STANZA + "serving.embedded = 1\n", "chat.toml `m.serving.embedded` must be a table"),
        ("m = 1\n", "chat.toml `m` must be a table"),
        (STANZA + STANZA, "chat.toml:"),
        ("[m", "chat.toml:"),
    ],
)
def test_complaint_names_file_stanza_and_key(tmp_path: Path, text: str, complaint: str) -> None:
    for noun in CATALOG_TYPES:
        (tmp_path / f"{noun}.toml").write_text(text if noun == "chat" else "")
    assert refusal(tmp_path).startswith(complaint)


@pytest.mark.parametrize("file", ["decisions", "voices", "sentences", "traits", "suggest", "public_figures"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, file: str) -> None:
    (edited(tmp_path, f"{file}.toml") / f"{file}.toml").unlink()
    assert refusal(tmp_path).startswith(f"{file}.toml: there is no such file in")


def test_the_names_of_choices_are_repeated_as_they_are(tmp_path: Path) -> None:
    folder = edited(tmp_path, "speech.toml", ("LANGUAGE_UNPROCESSABLE", "LANGUAGE_UNKNOWN"))
    sentence = refusal(folder)
    assert sentence.startswith("speech.toml [qwen3-tts] `language_fault`: ")
    assert "LANGUAGE_NOT_SUPPORTED" in sentence


def test_stanza_of_another_profile_is_checked_too(tmp_path: Path) -> None:
    text = STANZA + SERVING.replace("embedded", "production") + "wait_s = 0\n"
    for noun in CATALOG_TYPES:
        (tmp_path / f"{noun}.toml").write_text(text if noun == "chat" else "")
    with pytest.raises(CatalogError, match=r"m\.serving\.production"):
        load("embedded", tmp_path)


def test_a_serving_table_may_be_like_another(tmp_path: Path) -> None:
    alike = '[qwen3-tts.serving.cpu]\nlike = "embedded"\n'
    folder = edited(tmp_path, "speech.toml", (alike, f"{alike}wait_s = 7\n"))
    here, there = load("embedded", folder).speech["qwen3-tts"].serving, load("cpu", folder).speech["qwen3-tts"].serving
    assert here
    assert there
    beside = {"wait_s": 7, "deployment": {"ray_actor_options": {"num_cpus": 0.1}}}
    assert there == here.model_copy(update=beside) != here


@pytest.mark.parametrize("like", ['"nobody"', '"embedded"', '"cpu"', "[]"])
def test_a_serving_table_that_is_like_no_complete_one_is_refused(tmp_path: Path, like: str) -> None:
    text = STANZA + SERVING.replace("embedded", "production")
    text += f'[m.serving.cpu]\nlike = "production"\n[m.serving.embedded]\nlike = {like}\n'
    (tmp_path / "chat.toml").write_text(text)
    sentence = refusal(tmp_path)
    assert sentence.startswith("chat.toml [m.serving.embedded] `like`: there is no complete table `")
    assert sentence.endswith("; allowed: `production`")


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("speech.toml", 'provider = "mistral"', 'provider = "other"', r"voices.toml \[bib-f-20\] `provider`"),
        ("speech.toml", 'provider = "mistral"', 'provider = "qwen"', r"speech.toml \[qwen3-tts\] `provider`"),
        ("voices.toml", 'provider = "qwen"', 'provider = "nobody"', r"voices.toml \[rooom-f-01\] `provider`"),
        ("voices.toml", 'gender = "f"', 'gender = "x"', r"voices.toml \[F1\] `gender`"),
        ("sentences.toml", "\nzh = ", "\nxx = ", "sentences.toml: there is no sentence for `zh`, which"),
        ("sentences.toml", "\nzh = ", "\nzh = 1 #", "sentences.toml `zh` must be a string"),
    ],
)
def test_engines_voices_and_sentences_fit_together(
    tmp_path: Path, file: str, old: str, new: str, complaint: str
) -> None:
    assert re.match(complaint, refusal(edited(tmp_path, file, (old, new))))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ([("default_since = 1970-01-01", ""), ("default_since = 2026-09-26", "")], r"speech.toml: `default_since`"),
        (
            [("default_since = 1970-01-01", ""), ("default_since = 2026-09-26", "default_since = 9999-01-01")],
            r"speech.toml \[voxtral-mini-tts\] `default_since`: no engine is the default today",
        ),
        (
            [("default_since = 1970-01-01", "default_since = 2026-09-26")],
            r"speech.toml \[voxtral-mini-tts\] `default_since`: \[supertonic-3\]",
        ),
        ([("default_since = 2026-09-26", "default_since = 1")], r"speech.toml \[voxtral-mini-tts\] `default_since`"),
        ([("speaks_for_clips = true", "")], r"speech.toml: no stanza has `speaks_for_clips"),
        (
            [("has_cloning = true", "")],
            r"speech.toml \[cosyvoice-3\] `speaks_for_clips`: this engine has no `has_cloning`",
        ),
        (
            [("takeover_order = 10", "takeover_order = 10\nspeaks_for_clips = true")],
            r"speech.toml \[qwen3-tts\] `speaks_for_clips`: \[cosyvoice-3\]",
        ),
        ([("takeover_order = 10", ""), ("takeover_order = 20", "")], r"speech.toml: no stanza has `takeover_order`"),
        (
            [("takeover_order = 10", "takeover_order = 20")],
            r"speech.toml \[qwen3-tts\] `takeover_order`: \[supertonic-3\]",
        ),
    ],
)
def test_engines_among_which_none_could_be_chosen_are_refused(
    tmp_path: Path, changes: list[tuple[str, str]], complaint: str
) -> None:
    assert re.match(complaint, refusal(edited(tmp_path, "speech.toml", *changes)))


def test_a_new_language_needs_a_sentence(tmp_path: Path) -> None:
    ten = '"de", "en", "fr", "es", "it", "pt", "ru", "ja", "ko", "zh"'
    qwen = (f"languages = [{ten}]", f'languages = [{ten}, "sw"]')
    folder = edited(tmp_path, "speech.toml", qwen)
    assert "no sentence for `sw`, which [qwen3-tts] of speech.toml speaks" in refusal(folder)
    with (folder / "sentences.toml").open("a") as file:
        file.write('sw = "Habari ya asubuhi."\n')
    catalog = load("embedded", folder)
    assert catalog.sentences["sw"] == "Habari ya asubuhi."
    assert catalog.sentences.keys() == load("embedded").sentences.keys() | {"sw"}
    assert catalog.spoken_languages == load("embedded").spoken_languages | {"sw"}


@pytest.mark.parametrize("profile", PROFILES)
def test_what_runs_in_place_of_a_model_has_a_licence_of_its_own(profile: str) -> None:
    for model in load(profile).deployed():
        assert model.serving
        if model.serving.runtime != model.id:
            assert model.serving.license, model.id


def test_the_licence_that_is_listed_is_that_of_what_runs() -> None:
    model = load("embedded").speech["supertonic-3"]
    assert (model.license, model.runtime_license) == ("OpenRAIL-M", "Apache-2.0 AND GPL-3.0-or-later")
    listed = describe(model)
    assert (listed["runtime"], listed["license"]) == ("kokoro-82m", "Apache-2.0 AND GPL-3.0-or-later")
    kokoro, espeak = listed["runtimes"]
    assert (kokoro["runtime"], espeak["runtime"], espeak["license"]) == ("kokoro-82m", "espeak-ng", "GPL-3.0-or-later")
    assert sorted([*kokoro["languages"], *espeak["languages"]]) == sorted(model.languages)
    assert "runtimes" not in describe(load("production").speech["qwen3-tts"])
    assert load("production").speech["qwen3-tts"].runtime_license == "Apache-2.0"
    assert load("production").speech["supertonic-3"].runtime_license == "OpenRAIL-M"


@pytest.mark.parametrize("profile", ["embedded", "cpu"])
def test_the_catalogue_says_in_plain_words_what_small_machines_sound_like(profile: str) -> None:
    for model in load(profile).speech.values():
        named = {by["runtime"]: by for by in model.runtimes(has_voice=True)}
        assert "German with a French accent" in str(named["kokoro-82m"]["description"])
        assert "de" in named["kokoro-82m"]["languages"]
        for by in model.runtimes(has_voice=False):
            assert by["runtime"] == "kokoro-82m" or str(by["description"]).startswith("Synthetic"), by


def test_german_without_a_voice_is_spoken_by_what_is_understood_best() -> None:
    for profile in ("embedded", "cpu"):
        model = load(profile).speech["voxtral-mini-tts"]
        assert (model.speaker_of("de", has_voice=False).runtime, model.speaker_of("de").runtime) == (
            "svox-pico",
            "kokoro-82m",
        )
        assert model.default_voice is None


def test_voices_sound_alike_in_the_profiles_of_small_machines() -> None:
    for id, model in load("cpu").speech.items():
        embedded = load("embedded").speech[id].serving
        assert model.serving
        assert embedded
        assert model.serving.options == embedded.options


def test_unknown_profile_is_named() -> None:
    with pytest.raises(CatalogError, match="no profile `moon`; the profiles are cpu, embedded, gpu, production, twins"):
        load("moon")
