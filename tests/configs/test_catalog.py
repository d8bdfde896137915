"""The catalogue as shipped, traits, designers, what the loader says of a wrong stanza, and the place of a profile."""

import logging
import re
import shutil
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

import graph
from configs import FOLDER, PROFILES, CatalogError, load, profiles
from contract.catalog import CATALOG_TYPES, COUNTRIES, UNKNOWN_COUNTRY, Catalog, Operator
from contract.catalog.base import Serving
from contract.limits import INSTRUCT_CHARS, SPEECH_SPEED, VOICE_LABEL_CHARS
from contract.models import describe
from contract.voice_design.traits import AXES
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
ELSEWHERE = SERVING.replace("embedded", "production")


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


def test_every_profile_loads_and_its_serve_config_file_says_who_runs_it_where() -> None:
    for profile in PROFILES:
        catalog = load(profile)
        assert (catalog.profile, catalog.traits) == (profile, TRAITS)
        (app,) = yaml.safe_load((FOLDER / f"{profile}.yaml").read_text("utf-8"))["applications"]
        assert (app["import_path"], app["name"]) == ("graph:build", "parlance")
        assert {"operator", "country"} <= app["args"].keys()
        assert GraphArgs.model_validate(app["args"]).profile == profile
        for model in catalog.deployed():  # what runs in place of a model has a licence of its own
            assert model.serving
            assert model.serving.runtime == model.id or model.serving.license, model.id


def test_a_profile_is_a_serve_config_file(tmp_path: Path) -> None:
    assert profiles() == PROFILES == ("cpu", "embedded", "gpu", "production", "twins")
    for name in ("mine.yaml", "another.yaml", "ray.env"):
        (tmp_path / name).touch()
    assert profiles(tmp_path) == ("another", "mine")


def test_models_of_the_spec_are_known() -> None:
    catalog = load("embedded")
    for model_id, (tier, window) in CHAT.items():
        assert catalog.chat[model_id].tier == tier
        assert window in (None, catalog.chat[model_id].context_window)
    assert catalog.embeddings["bge-m3"].dimensions == 1024
    assert catalog.embeddings["nomic-embed-code"].dimensions == 3584
    for models in (catalog.chat, catalog.embeddings, catalog.rerank):
        assert any(model.serving for model in models.values())


def test_every_price_of_what_is_set_up_is_above_zero() -> None:
    for model in load("embedded").deployed():
        assert model.price, model.id
        assert min(model.price.values()) > 0, model.id


COMPLAINTS = [
    (STANZA.replace("context_window = 10", "context_window = -1"), "chat.toml [m] `context_window`"),
    (STANZA + "colour = 1\n", "chat.toml [m] `colour`"),
    (STANZA.replace("owned_by", "owner"), "chat.toml [m] `owned_by`"),
    (STANZA + SERVING + "wait_s = 0\n", "chat.toml [m.serving.embedded] `wait_s`"),
    (STANZA + SERVING.replace("models.chat:VllmChat", "nothing"), "chat.toml [m.serving.embedded] `adapter`"),
    (STANZA + SERVING.replace("embedded", "moon"), "chat.toml [m.serving]: there is no profile `moon`"),
    (STANZA + ELSEWHERE + "wait_s = 0\n", "chat.toml [m.serving.production] `wait_s`"),
    (STANZA + SERVING + "cpus = 1\n", "chat.toml [m.serving.embedded] `cpus`"),
    (STANZA + SERVING + "deployment = 1\n", "chat.toml [m.serving.embedded] `deployment`"),
    (STANZA + "serving = 1\n", "chat.toml `m.serving` must be a table"),
    (STANZA + "serving.embedded = 1\n", "chat.toml `m.serving.embedded` must be a table"),
    ("m = 1\n", "chat.toml `m` must be a table"),
    (STANZA + STANZA, "chat.toml:"),
    ("[m", "chat.toml:"),
]


def test_complaint_names_file_stanza_and_key(tmp_path: Path) -> None:
    for noun in CATALOG_TYPES:
        (tmp_path / f"{noun}.toml").touch()
    for text, complaint in COMPLAINTS:
        (tmp_path / "chat.toml").write_text(text)
        assert refusal(tmp_path).startswith(complaint)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    for file in ("decisions", "voices", "sentences", "traits", "suggest", "public_figures"):
        (edited(tmp_path, f"{file}.toml") / f"{file}.toml").unlink()
        assert refusal(tmp_path).startswith(f"{file}.toml: there is no such file in")


def test_a_request_waits_for_the_start_of_an_engine_for_240_seconds_unless_its_stanza_says_otherwise() -> None:
    assert Serving.model_fields["wait_s"].default == 240


def test_a_serving_table_may_be_like_another(tmp_path: Path) -> None:
    alike = '[qwen3-tts.serving.cpu]\nlike = "embedded"\n'
    own = "wait_s = 7\ndeployment = { ray_actor_options = { num_cpus = 0.1 } }\n"
    folder = edited(tmp_path, "speech.toml", (alike, alike + own))
    here, there = load("embedded", folder).speech["qwen3-tts"].serving, load("cpu", folder).speech["qwen3-tts"].serving
    assert here
    assert there
    beside = {"wait_s": 7, "deployment": {"ray_actor_options": {"num_cpus": 0.1}}}
    assert there == here.model_copy(update=beside) != here


def test_a_serving_table_that_is_like_no_complete_one_is_refused(tmp_path: Path) -> None:
    for like in ('"nobody"', '"embedded"', '"cpu"', "[]"):
        text = STANZA + ELSEWHERE
        text += f'[m.serving.cpu]\nlike = "production"\n[m.serving.embedded]\nlike = {like}\n'
        (tmp_path / "chat.toml").write_text(text)
        sentence = refusal(tmp_path)
        assert sentence.startswith("chat.toml [m.serving.embedded] `like`: there is no complete table `")
        assert sentence.endswith("; allowed: `production`")


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


def test_small_machines_speak_german_alike_and_the_catalogue_says_in_plain_words_what_they_sound_like() -> None:
    for profile in ("embedded", "cpu"):
        for id, model in load(profile).speech.items():
            assert model.serving
            assert model.serving.options == load("embedded").speech[id].setup.options
            named = {by["runtime"]: by for by in model.runtimes(has_voice=True)}
            assert "German with a French accent" in str(named["kokoro-82m"]["description"])
            assert "de" in named["kokoro-82m"]["languages"]
            for by in model.runtimes(has_voice=False):
                assert by["runtime"] == "kokoro-82m" or str(by["description"]).startswith("Synthetic"), by
        model = load(profile).speech["voxtral-mini-tts"]
        speakers = model.speaker_of("de", has_voice=False).runtime, model.speaker_of("de").runtime
        assert (*speakers, model.default_voice) == ("svox-pico", "kokoro-82m", None)


def test_unknown_profile_is_named() -> None:
    with pytest.raises(CatalogError, match="no profile `moon`; the profiles are cpu, embedded, gpu, production, twins"):
        load("moon")


def test_countries_are_those_of_the_standard_and_an_operator_has_a_name() -> None:
    assert (len(COUNTRIES), UNKNOWN_COUNTRY in COUNTRIES) == (249, False)
    for country in ("DE", "IE", "ZW", UNKNOWN_COUNTRY):
        assert GraphArgs(operator="Example GmbH", country=country).country == country
    for name in ("x", "x" * 100):
        assert Operator(name=name).name == GraphArgs(operator=name).operator == name
    for name in ("x" * 101, " "):
        for kind, field in ((Operator, "name"), (GraphArgs, "operator")):
            with pytest.raises(ValidationError):
                kind.model_validate({field: name})
    for country in ("", "de", "DEU", "XX", "UK", "EU", "Germany", "D", 49, None):
        with pytest.raises(ValidationError):
            GraphArgs.model_validate({"country": country})


@pytest.mark.parametrize(("country", "warned"), [("DE", False), (UNKNOWN_COUNTRY, True)])
def test_the_graph_gets_the_place_and_an_unknown_country_is_loud(
    country: str, warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wired: list[Catalog] = []
    monkeypatch.setattr(graph, "wire", lambda catalog, _ingress, **_: wired.append(catalog))
    with caplog.at_level(logging.WARNING, "parlance.graph"):
        graph.build(GraphArgs(operator="Example GmbH", country=country))
    assert wired[0].operator == Operator(name="Example GmbH", country=country)
    assert bool(caplog.records) == warned


TRAITS = load("embedded").traits


def test_everything_has_a_label_in_german_and_english() -> None:
    for name, id, named in TRAITS.named():
        assert {"de", "en"} <= named.labels.keys(), (name, id)
        assert named.label("ja") == named.labels["en"]


def test_traits_move_pitch_and_tempo_both_ways_and_stay_within_the_limits() -> None:
    shifts = [trait.semitones for trait in TRAITS.axes["timbre"].values()]
    assert shifts == [-2, -1, 0, 1, 2]
    speeds = [trait.speed for trait in TRAITS.axes["tempo"].values()]
    assert speeds == sorted(speeds)
    assert SPEECH_SPEED[0] <= speeds[0] < 1 < speeds[-1] <= SPEECH_SPEED[1]
    for trait in (trait for axis in ("character", "use_case") for trait in TRAITS.axes[axis].values()):
        assert (trait.semitones, trait.speed) == (0, 1)


def test_the_longest_description_and_name_leave_room() -> None:
    longest = [max(entries.values(), key=lambda trait: len(trait.instruct)) for entries in TRAITS.axes.values()]
    assert sum(len(trait.instruct) for trait in longest) < INSTRUCT_CHARS / 4
    for language in ("de", "en"):
        by_label = [max(TRAITS.axes[axis].values(), key=lambda t: len(t.label(language))) for axis in AXES[:2]]
        assert len(TRAITS.name("m", 90, by_label, language)) <= VOICE_LABEL_CHARS


def test_every_designer_has_voices_that_an_engine_speaks() -> None:
    catalog = load("production")
    assert catalog.voice_design
    for model in catalog.voice_design.values():
        (engine,) = (engine for engine in catalog.speech.values() if engine.provider == model.provider)
        assert set(model.languages) <= set(engine.languages) & catalog.sentences.keys()


NONE_NOW = [("default_since = 1970-01-01", ""), ("default_since = 2026-09-26", "default_since = 9999-01-01")]
NO_CHOICE: list[tuple[list[tuple[str, str]], str]] = [
    ([("default_since = 1970-01-01", ""), ("default_since = 2026-09-26", "")], r"speech.toml: `default_since`"),
    (NONE_NOW, r"speech.toml \[voxtral-mini-tts\] `default_since`: no engine is the default today"),
    (
        [("default_since = 1970-01-01", "default_since = 2026-09-26")],
        r"speech.toml \[voxtral-mini-tts\] `default_since`: \[supertonic-3\]",
    ),
    ([("default_since = 2026-09-26", "default_since = 1")], r"speech.toml \[voxtral-mini-tts\] `default_since`"),
    ([("speaks_for_clips = true", "")], r"speech.toml: no stanza has `speaks_for_clips"),
    ([("has_cloning = true", "")], r"speech.toml \[cosyvoice-3\] `speaks_for_clips`: this engine has no `has_cloning`"),
    (
        [("takeover_order = 10", "takeover_order = 10\nspeaks_for_clips = true")],
        r"speech.toml \[qwen3-tts\] `speaks_for_clips`: \[cosyvoice-3\]",
    ),
    ([("takeover_order = 10", ""), ("takeover_order = 20", "")], r"speech.toml: no stanza has `takeover_order`"),
    ([("takeover_order = 10", "takeover_order = 20")], r"speech.toml \[qwen3-tts\] `takeover_order`: \[supertonic-3\]"),
]
"""Changes of the stanzas of speech after which no engine, or more than one, could be chosen, and the complaint."""
WRONG = {
    "speech": [
        ('provider = "mistral"', 'provider = "other"', r"voices.toml \[bib-f-20\] `provider`"),
        ('provider = "mistral"', 'provider = "qwen"', r"speech.toml \[qwen3-tts\] `provider`"),
        ("UNPROCESSABLE", "UNKNOWN", r"speech.toml \[qwen3-tts\] `language_fault`: (?s:.*)LANGUAGE_NOT_SUPPORTED"),
    ],
    "voices": [
        ('provider = "qwen"', 'provider = "nobody"', r"voices.toml \[rooom-f-01\] `provider`"),
        ('gender = "f"', 'gender = "x"', r"voices.toml \[F1\] `gender`"),
    ],
    "sentences": [
        ("\nzh = ", "\nxx = ", "sentences.toml: there is no sentence for `zh`, which"),
        ("\nzh = ", "\nzh = 1 #", "sentences.toml `zh` must be a string"),
    ],
    "traits": [
        ("[timbre.low]", "[timbre.deep]", r"traits.toml: "),
        ("[timbre.low]", "[colour.low]", r"traits.toml \[traits\] `colour`"),
        ("semitones = -2", "semitones = -13", r"traits.toml \[traits\] `axes.timbre.deep.semitones`"),
        ("speed = 0.8", "speed = 0", r"traits.toml \[traits\] `axes.tempo.very_slow.speed`"),
        ("is_plain = true", "", r"traits.toml `timbre`: exactly one trait .* 0 have"),
        ("semitones = -2", "is_plain = true", r"traits.toml `timbre`: exactly one trait .* 2 have"),
        ("from_years = 16", "from_years = 17", r"traits.toml \[age_groups.16-19\] `from_years` must be 16"),
        ("to_years = 29", "to_years = 28", r"traits.toml \[age_groups.30-39\] `from_years` must be 29"),
        ("to_years = 29", "to_years = 30", r"traits.toml \[age_groups.30-39\] `from_years` must be 31"),
        ("to_years = 19", "to_years = 15", r"traits.toml \[age_groups.16-19\] `to_years`"),
        ("to_years = 90", "to_years = 89", r"traits.toml `age_groups`: the oldest group ends at 89, .* must end at 90"),
        ("[genders.m]", "[genders.x]", r"traits.toml \[traits\] `genders.x"),
        ('en = "deep"', 'fr = "grave"', r"traits.toml \[timbre.deep\] `labels` must have one in English"),
        ("words.de =", "words.fr =", r"traits.toml \[timbre.deep\] `words.fr`"),
        ('"tieftonig-"', f'"{"t" * 25}-"', r"traits.toml \[timbre.deep\] `words.de`: .* too long"),
        ('"tieftonig-"', '"-"', r"traits.toml \[timbre.deep\] `words.de`: a word is empty"),
        ("[languages.zh]", "[languages.xx]", r"voice_design.toml \[qwen3-tts\] `languages`: .*name for zh"),
        ("[languages.zh]", '[languages.tr]\nlabels.en = "T"\n[languages.zh]', r"traits.toml \[languages.tr\]"),
    ],
    "suggest": [
        ("[false_friends]", "[enemies]", r"suggest.toml \[words\] `enemies`"),
        ("[wording.en]", "[wording.en]\nsmile = 1", r"suggest.toml \[words\] `wording.en.smile`"),
    ],
    "public_figures": [
        ('timbre = "deep"', 'timbre = "dull"', r"public_figures.toml \[morgan freeman\] `timbre`"),
        ('timbre = "deep"', 'colour = "red"', r"public_figures.toml \[morgan freeman\] `colour`"),
        ("age_years = 68", "", r"public_figures.toml \[people\] `figures.0.age_years`"),
    ],
    "voice_design": [
        ('provider = "qwen"', 'provider = "nobody"', r"voice_design.toml \[qwen3-tts\] `provider`"),
        ('"zh"]', '"tr"]', r"voice_design.toml \[qwen3-tts\] `languages`: .*does not speak tr"),
    ],
}
"""By file: what is replaced there with what, and the complaint."""


@pytest.mark.parametrize("file", WRONG)
def test_engines_voices_sentences_traits_and_designers_fit_together(tmp_path: Path, file: str) -> None:
    changes = [([(old, new)], complaint) for old, new, complaint in WRONG[file]]
    for change, complaint in changes + (NO_CHOICE if file == "speech" else []):
        assert re.match(complaint, sentence := refusal(edited(tmp_path, f"{file}.toml", *change))), sentence


def test_a_word_of_24_letters_can_be_matched(tmp_path: Path) -> None:
    load("embedded", edited(tmp_path, "traits.toml", ('"tieftonig-"', f'"{"t" * 24}-"')))
