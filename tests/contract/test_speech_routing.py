"""The rule that chooses engine, voice and language, against the sentences that promise it.

`expected` is the same rule a second time, built from rows that quote the spec, over lists copied from the spec and not
from the catalogue. The table test compares the two for every combination.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from itertools import product

from configs import load
from contract import errors
from contract.speech.request import SpeechRequest
from contract.speech.routing import SpeechRoute, choose
from contract.speech.voices import SYSTEM_VOICES, Voice
from tests.contract.bodies import read, refusal

CATALOG = load("embedded")
ENGINES = {model.provider: model for model in CATALOG.speech.values()}
OWN = Voice(
    slug="our-anna",
    provider="qwen",
    label="Anna",
    origin="designed",
    gender="f",
    age_group="30-35",
    primary_language="de",
    scope="org",
)
VOICES = {**CATALOG.voices, OWN.slug: OWN}

BEFORE, SINCE = date(2026, 9, 25), date(2026, 9, 26)

LANGUAGES = {
    "supertonic": "en ko ja ar bg cs da de el es et fi fr hi hr hu id it lt lv nl pl pt ro ru sk sl sv tr uk vi",
    "qwen": "de en fr es it pt ru ja ko zh",
    "cosyvoice": "zh en ja ko de es fr it ru",
    "mistral": "de en fr es it pt nl hi ar",
}
MODELS = {"supertonic-3": "supertonic", "cosyvoice-3": "cosyvoice", "voxtral-mini-tts": "mistral", "qwen3-tts": "qwen"}
OWNERS = {
    **dict.fromkeys(("M1", "F5"), "supertonic"),
    "de-thorsten": "cosyvoice",
    "rooom-f-01": "qwen",
    "rooom-m-02": "qwen",
    "bib-f-30": "mistral",
    "our-anna": "qwen",
}


@dataclass(frozen=True)
class Asked:
    """A combination of the table; `detected` is what the text seems to be."""

    provider: str | None
    model: str | None
    voice: str | None
    language: str | None
    clip: bool
    detected: str
    today: date

    @property
    def owner(self) -> str | None:
        return OWNERS.get(self.voice or "")

    @property
    def wanted_language(self) -> str:
        if self.language == "auto":
            return self.detected
        if self.language is None:
            return "en" if self.voice == "default-en" else "de"
        return self.language.split("-")[0]

    @property
    def usual(self) -> str:
        return "supertonic" if self.today <= BEFORE else "mistral"


def speaks(engine: str, language: str) -> bool:
    return language in LANGUAGES[engine].split()


ENGINE_ROWS: list[tuple[str, Callable[[Asked], str | None]]] = [
    ("`provider` wins over `model`", lambda a: a.provider),
    ("any other value of `model` is not rejected", lambda a: MODELS.get(a.model or "")),
    ("else the engine of `voice`", lambda a: a.owner),
    ("a reference clip alone selects `cosyvoice`", lambda a: "cosyvoice" if a.clip else None),
    ("else the default engine", lambda a: a.usual if speaks(a.usual, a.wanted_language) else None),
    ("`qwen` takes over for languages such as ru, ja", lambda a: "qwen" if speaks("qwen", a.wanted_language) else None),
    ("otherwise `supertonic`", lambda a: "supertonic"),
]

FAULT_ROWS: list[tuple[str, Callable[[Asked, str], bool]]] = [
    ("UNKNOWN_VOICE", lambda a, e: a.voice not in (None, "default-de", "default-en", *OWNERS)),
    ("UNKNOWN_VOICE", lambda a, e: e == "qwen" and a.owner not in (None, "qwen")),
    ("VOICE_PROVIDER_MISMATCH", lambda a, e: a.owner not in (None, e)),
    ("CLONING_NOT_SUPPORTED", lambda a, e: a.clip and e != "cosyvoice"),
    ("LANGUAGE_UNPROCESSABLE", lambda a, e: e == "qwen" and not speaks(e, a.wanted_language)),
    ("LANGUAGE_NOT_SUPPORTED", lambda a, e: e == "supertonic" and not speaks(e, a.wanted_language)),
]

DEFAULT_VOICES = {
    ("supertonic", "default-de"): "F1",
    ("supertonic", "default-en"): "M1",
    ("supertonic", None): "F1",
    ("qwen", "default-de"): "rooom-f-01",
    ("qwen", "default-en"): "rooom-f-01",
    ("qwen", None): "rooom-f-01",
    ("cosyvoice", "default-de"): "de-thorsten",
    ("cosyvoice", "default-en"): "de-thorsten",
    ("cosyvoice", None): "de-thorsten",
}
"""The catalogue engine has a voice of its own without a name."""


def expected(asked: Asked) -> str | tuple[str, str | None, str, str]:
    """Name of the fault, or provider, slug for the engine, `X-Voice` and language."""
    engine = next(name for _, row in ENGINE_ROWS if (name := row(asked)))
    for fault, applies in FAULT_ROWS:
        if applies(asked, engine):
            return fault
    if asked.clip:
        slug, told = None, "default"
    elif asked.owner:
        slug = told = asked.voice
    else:
        slug = DEFAULT_VOICES.get((engine, asked.voice))
        told = (slug or "default") if asked.voice else "default"
    follows_text = engine in ("cosyvoice", "mistral")
    return engine, slug, told, asked.detected if follows_text else asked.wanted_language


def outcome(asked: Asked) -> str | tuple[str, str | None, str, str]:
    request = SpeechRequest(
        input="text",
        provider=asked.provider,
        model=asked.model,
        voice=asked.voice,
        language=asked.language,
        reference_audio_b64="UklGRg==" if asked.clip else None,
    )
    try:
        choice = choose(request, VOICES, ENGINES, asked.detected, asked.today)
    except errors.ApiError as error:
        return error.fault.name
    return choice.model.provider, choice.voice, choice.spoken_as, choice.language


def table() -> Iterator[Asked]:
    providers = (None, "supertonic", "cosyvoice", "mistral", "qwen")
    models = (None, "tts-1-hd", *MODELS)
    voices = (None, "alloy", "default-de", "default-en", *OWNERS)
    languages = (None, "auto", "de", "de-DE", "en", "ru", "ja", "zh", "tr", "nl", "xx")
    rows = product(providers, models, voices, languages, (False, True), ("de", "ru", "tr"), (BEFORE, SINCE))
    return (Asked(*row) for row in rows)


def test_every_combination_gives_what_the_spec_says() -> None:
    seen: dict[str, int] = {}
    for asked in table():
        want = expected(asked)
        assert outcome(asked) == want, asked
        name = want if isinstance(want, str) else want[0]
        seen[name] = seen.get(name, 0) + 1
    # A table that never meets a row proves nothing about it.
    assert set(seen) == {*ENGINES, *(fault for fault, _ in FAULT_ROWS)}
    assert min(seen.values()) > 100


def test_the_lists_of_the_spec_are_in_the_catalogue() -> None:
    for provider, codes in LANGUAGES.items():
        assert set(ENGINES[provider].languages) == set(codes.split())
    assert {model.id: model.provider for model in ENGINES.values()} == MODELS
    assert all(CATALOG.voices[slug].provider == owner for slug, owner in OWNERS.items() if slug != OWN.slug)


def spoken(**fields: object) -> SpeechRoute:
    return choose(read(SpeechRequest, {"input": "text"} | fields), VOICES, ENGINES, "de", SINCE)


def test_stanzas_decide_and_no_name_does() -> None:
    changes: dict[str, dict[str, object]] = {
        "mistral": {"default_since": None, "takeover_order": 1},
        "qwen": {
            "default_since": date(2026, 10, 1),
            "takeover_order": None,
            "voice_fault": "VOICE_PROVIDER_MISMATCH",
            "language_fault": "LANGUAGE_NOT_SUPPORTED",
            "has_cloning": True,
            "speaks_for_clips": True,
        },
        "cosyvoice": {"speaks_for_clips": False, "has_cloning": False},
        "supertonic": {"voice_fault": "UNKNOWN_VOICE", "language_fault": "LANGUAGE_UNPROCESSABLE"},
    }
    engines = {name: model.model_copy(update=changes[name]) for name, model in ENGINES.items()}

    def outcome_of(today: date = date(2026, 10, 1), **body: object) -> str:
        try:
            return choose(SpeechRequest(input="text", **body), VOICES, engines, "de", today).model.provider
        except errors.ApiError as error:
            return error.fault.name

    assert (outcome_of(), outcome_of(date(2026, 9, 30))) == ("qwen", "supertonic")
    assert (outcome_of(language="hi"), outcome_of(language="tr")) == ("mistral", "supertonic")
    assert outcome_of(language="xx") == "LANGUAGE_UNPROCESSABLE"
    assert outcome_of(reference_audio_b64="UklGRg==") == "qwen"
    assert outcome_of(reference_audio_b64="UklGRg==", provider="cosyvoice") == "CLONING_NOT_SUPPORTED"
    assert outcome_of(provider="qwen", voice="M1") == "VOICE_PROVIDER_MISMATCH"
    assert outcome_of(provider="supertonic", voice="bib-f-20") == "UNKNOWN_VOICE"
    assert outcome_of(provider="qwen", language="tr") == "LANGUAGE_NOT_SUPPORTED"


def test_an_unknown_voice_or_provider_is_told_with_those_that_exist_and_not_repeated_whole() -> None:
    for voice in ("alloy", "x" * 5000):
        error = refusal(spoken, fault=errors.UNKNOWN_VOICE, voice=voice)
        assert (error.param, all(name in error.message for name in SYSTEM_VOICES)) == ("voice", True)
        assert len(error.message) < 300
    others: list[dict[str, str]] = [{}, {"voice": "alloy"}, {"model": "qwen3-tts"}, {"input": "a" * 9000}]
    for provider, other in product(("openai", "Qwen", " ", "x" * 9000), others):
        error = refusal(spoken, provider=provider, **other)
        assert (error.param, all(name in error.message for name in ENGINES)) == ("provider", True)
        assert len(error.message) < 200


def test_regions_and_case_of_a_language_do_not_matter_and_one_that_is_not_spoken_is_told_with_those_that_are() -> None:
    spellings = ("DE", "de-DE", "de_AT", " de ", "de-Latn-CH")
    assert {spoken(provider="qwen", language=language).language for language in spellings} == {"de"}
    faults = {"supertonic": errors.LANGUAGE_NOT_SUPPORTED, "qwen": errors.LANGUAGE_UNPROCESSABLE}
    for (provider, fault), language in product(faults.items(), ("xx", " ", "german", "fa")):
        error = refusal(spoken, fault=fault, provider=provider, language=language)
        assert error.param == "language"
        assert error.body()["error"]["supported"] == list(ENGINES[provider].languages)


def test_characters_are_counted() -> None:
    ways: list[tuple[dict[str, str], int, errors.Fault]] = [
        *(({"provider": name}, 4000, errors.INVALID_REQUEST) for name in ("supertonic", "cosyvoice", "mistral")),
        *((way, 2000, errors.TEXT_TOO_LONG) for way in ({"provider": "qwen"}, {"voice": OWN.slug}, {"language": "ru"})),
    ]
    for (way, most, fault), sign in product(ways, "aä😀"):
        for count in (most - 1, most):
            assert spoken(input=sign * count, **way).model.max_input_chars == most
        for count in (most + 1, 4001, 9000):
            error = refusal(spoken, fault=fault, input=sign * count, **way)
            assert (error.param, f"{count}" in error.message) == ("input", True)


def test_speed_has_bounds_where_it_means_something() -> None:
    for speed in (0.5, 0.50001, 1, 1.99, 2.0):
        assert spoken(provider="cosyvoice", speed=speed).model.has_speed
    for speed in (0.49, 2.01, 0, -1, 1e308):
        assert refusal(spoken, provider="cosyvoice", speed=speed).param == "speed"
        for provider in ("supertonic", "mistral", "qwen"):
            assert spoken(provider=provider, speed=speed).model.provider == provider


FORMATS = {
    "supertonic": {"wav": "wav", "flac": "flac", "ogg": "wav", "mp3": "wav", "opus": "wav", "aac": "wav", None: "wav"},
    "cosyvoice": dict.fromkeys(("wav", "flac", "ogg", "mp3", "opus", "aac", None), "wav"),
    "mistral": {"wav": "wav", "flac": "flac", "ogg": "mp3", "mp3": "mp3", "opus": "opus", "aac": "aac", None: "mp3"},
    "qwen": dict.fromkeys(("wav", "flac", "ogg", "mp3", "opus", "aac", None), "wav"),
}


def test_formats() -> None:
    answers = {
        provider: {asked: spoken(provider=provider, response_format=asked).format for asked in formats}
        for provider, formats in FORMATS.items()
    }
    assert answers == FORMATS
