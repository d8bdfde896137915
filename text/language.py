"""The language of a text, for `language: auto` and for engines that follow the text: `docs/api.md#post-audiospeech`.

detect("Où est la gare ?", spoken) -> "fr"
    - by its script, where only one language uses it
    - by its letters and words otherwise; German where these are too few
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set

UNCERTAIN = "de"
"""The language of a text that is too short to tell."""

MAX_CHARS = 2000
"""Characters of a text that are read; more of them change no result."""

SURE_LETTERS = 40
"""Letters from which on a language that no engine speaks is accepted: CLD2 takes many short texts for one."""

LOW_SCORE = 250.0
"""CLD2's score per kilobyte below which a guess does not count, as for names and numbers alone."""

CLOSEST = {"no": "da", "nb": "da", "nn": "da", "af": "nl", "ms": "id", "sr": "hr", "bs": "hr", "gl": "pt"}
"""CLD2's guess for a short text, to the language that it more likely is where no engine speaks the first."""

CLOSEST_CYRILLIC = {"sr": "bg", "mk": "bg"}
"""As CLOSEST, for Cyrillic texts."""

_BEYOND_LATIN = re.compile(
    "[\u0370-\u1dff\u2c00-\ua6ff\ua800-\ufaff\ufb1d-\ufdff\ufe70-\ufeff\uff66-\uffdc\U00020000-]"
)
_LATIN = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")
_KANA = re.compile("[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9d]")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_CYRILLIC = re.compile("[\u0400-\u052f]")
_OTHER_SCRIPTS = {
    "ko": re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]"),
    "el": re.compile("[\u0370-\u03ff\u1f00-\u1fff]"),
    "hi": re.compile("[\u0900-\u097f]"),
    "ar": re.compile("[\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff]"),
    "he": re.compile("[\u0590-\u05ff]"),
    "th": re.compile("[\u0e00-\u0e7f]"),
}
_EAST_ASIAN = frozenset({"ja", "zh", "ko"})

_NOT_LANGUAGE = re.compile(r"<[^<>]{0,40}>|\[[^\[\]]{0,40}\]|\S+@\S+|https?://\S+|www\.\S+")
_NO_LETTER = re.compile(r"[^\w\s'’]|[\d_]")


def detect(text: str, spoken: Set[str]) -> str:
    """The language of `text`, ISO 639-1, `de` where it is uncertain. Never raises.

    `spoken` are the languages that at least one engine speaks; others are accepted for long texts only.
    """
    plain = unicodedata.normalize("NFC", _NOT_LANGUAGE.sub(" ", text[:MAX_CHARS]))
    if _BEYOND_LATIN.search(plain) and (language := _by_script(plain, spoken)):
        return language
    return _latin(" ".join(_NO_LETTER.sub(" ", plain).split()), spoken)


def _by_script(text: str, spoken: Set[str]) -> str | None:
    """The language of the script that most of the text is in; None if that is the Latin one."""
    counts = {name: len(script.findall(text)) for name, script in _OTHER_SCRIPTS.items()}
    kana, han = len(_KANA.findall(text)), len(_HAN.findall(text))
    # A single kana is fashion in Chinese; Japanese has far more than one in eight.
    counts["ja" if kana and 8 * kana >= kana + han else "zh"] = kana + han
    counts["ru"] = len(_CYRILLIC.findall(text))
    # One of these signs tells as much as three letters.
    weights = {name: 3 * n if name in _EAST_ASIAN else n for name, n in counts.items()}
    language = max(weights, key=lambda name: weights[name])
    if weights[language] <= len(_LATIN.findall(text)):
        return None
    return _cyrillic(text.lower(), spoken) if language == "ru" else language


def _cyrillic(text: str, spoken: Set[str]) -> str:
    if re.search("[іїєґ]", text):
        return "uk"
    if re.search("[ыэё]", text):
        return "ru"
    language = _guess(_NO_LETTER.sub(" ", text))
    if language not in {"bg", "uk", *CLOSEST_CYRILLIC}:
        return "ru"
    return language if language in spoken else CLOSEST_CYRILLIC.get(language, language)


def _latin(text: str, spoken: Set[str]) -> str:
    language = _guess(text)
    if language == "en" or " " not in text:
        # German borrows from English, and one word tells little: the guess must hold against a hint of German.
        language = _guess(text, hint=UNCERTAIN)
    if language not in spoken:
        language = CLOSEST.get(language, language)
    return language if language in spoken or len(text) >= SURE_LETTERS else UNCERTAIN


def _guess(text: str, hint: str | None = None) -> str:
    import pycld2

    try:
        _, _, guesses = pycld2.detect(text, bestEffort=True, hintLanguage=hint)
    except (pycld2.error, ValueError):  # it refuses some bytes that are no text
        return UNCERTAIN
    _, code, _, score = guesses[0]
    return code if len(code) == 2 and code != "un" and score >= LOW_SCORE else UNCERTAIN
