"""The language of a text, for `language: auto` and for engines that follow the text: `docs/api.md#post-audiospeech`.

detect("Où est la gare ?", spoken) -> "fr"
    - by its script, where only one language uses it
    - by its letters and words otherwise; German where these are too few
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Set

import regex

UNCERTAIN = "de"
"""The language of a text that is too short."""

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

_SCRIPTS = regex.compile(
    r"(?P<latin>\p{Latin}+)|(?P<kana>[\p{Hiragana}\p{Katakana}ー]+)|(?P<han>\p{Han}+)|(?P<ko>\p{Hangul}+)"
    r"|(?P<ru>\p{Cyrillic}+)|(?P<el>\p{Greek}+)|(?P<hi>\p{Devanagari}+)|(?P<ar>\p{Arabic}+)|(?P<he>\p{Hebrew}+)"
    r"|(?P<th>\p{Thai}+)"
)
_DENSE = {"kana": 3, "han": 3, "ko": 3}
"""Scripts in which one sign says as much as three letters."""

_NOT_LANGUAGE = re.compile(r"<[^<>]{0,40}>|\[[^\[\]]{0,40}\]|\S+@\S+|https?://\S+|www\.\S+")
_NO_LETTER = re.compile(r"[^\w\s'’]|[\d_]")


def detect(text: str, spoken: Set[str]) -> str:
    """The language of `text`, ISO 639-1, `de` where it is uncertain. Never raises.

    `spoken` are the languages that at least one engine speaks; others are accepted for long texts only.
    """
    plain = unicodedata.normalize("NFC", _NOT_LANGUAGE.sub(" ", text[:MAX_CHARS]))
    language = _by_script(plain)
    if language == "ru":
        return _cyrillic(plain.lower(), spoken)
    return language or _latin(" ".join(_NO_LETTER.sub(" ", plain).split()), spoken)


def _by_script(text: str) -> str | None:
    """The language of the script that most of the text is in; None if that is the Latin one, `ru` for Cyrillic."""
    counts = Counter({"latin": 0})
    for match in _SCRIPTS.finditer(text):
        counts[match.lastgroup] += len(match[0]) * _DENSE.get(match.lastgroup, 1)
    kana, han = counts.pop("kana", 0), counts.pop("han", 0)
    # A single kana is fashion in Chinese; Japanese has far more than one in eight.
    counts["ja" if kana and 8 * kana >= kana + han else "zh"] = kana + han
    language = max(counts, key=lambda name: counts[name])
    return None if language == "latin" else language


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
        # German borrows from English, and one word says little: the guess must hold against a hint of German.
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
