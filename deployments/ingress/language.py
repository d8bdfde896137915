"""Which language a text is in, for `language: auto` and for engines that follow the text. Spec 4 (POST /audio/speech).

detect("Où est la gare ?") -> "fr"
    - by its script, where the script says it
    - by its letters and words otherwise; German where they do not say enough
"""

from __future__ import annotations

import re
import unicodedata

UNCERTAIN = "de"
"""Spec 4: what a text is taken for that does not say enough."""

MAX_CHARS = 2000
"""More of a text says nothing new."""

SURE_LETTERS = 40
"""A language that no engine speaks is believed only from so many letters on: short texts are often taken for one."""

LOW_SCORE = 250.0
"""Of CLD2, per kilobyte. What it says of names and numbers alone stays below."""

CLOSEST = {"no": "da", "nb": "da", "nn": "da", "af": "nl", "ms": "id", "sr": "hr", "bs": "hr", "gl": "pt"}
"""CLD2's name for a short text, and the language of our engines that it is likely to be."""

SPOKEN = frozenset(
    "ar bg cs da de el en es et fi fr hi hr hu id it ja ko lt lv nl pl pt ro ru sk sl sv tr uk vi zh".split()  # noqa: SIM905
)
"""What at least one engine speaks; a test compares this with the catalogue."""

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


def detect(text: str) -> str:
    """The language of `text`, ISO 639-1, `de` where it is not sure. Never raises."""
    plain = unicodedata.normalize("NFC", _NOT_LANGUAGE.sub(" ", text[:MAX_CHARS]))
    if _BEYOND_LATIN.search(plain) and (language := _by_script(plain)):
        return language
    return _latin(" ".join(_NO_LETTER.sub(" ", plain).split()))


def _by_script(text: str) -> str | None:
    """The language of the script that most of the text is in; None if that is the Latin one."""
    counts = {name: len(script.findall(text)) for name, script in _OTHER_SCRIPTS.items()}
    kana, han = len(_KANA.findall(text)), len(_HAN.findall(text))
    # A single kana is fashion in Chinese; Japanese has far more than one in eight.
    counts["ja" if kana and 8 * kana >= kana + han else "zh"] = kana + han
    counts["ru"] = len(_CYRILLIC.findall(text))
    # A sign of these says as much as three letters.
    weights = {name: 3 * n if name in _EAST_ASIAN else n for name, n in counts.items()}
    language = max(weights, key=lambda name: weights[name])
    if weights[language] <= len(_LATIN.findall(text)):
        return None
    return _cyrillic(text.lower()) if language == "ru" else language


def _cyrillic(text: str) -> str:
    if re.search("[іїєґ]", text):
        return "uk"
    if re.search("[ыэё]", text):
        return "ru"
    # CLD2 takes short Bulgarian for its neighbours.
    return {"bg": "bg", "sr": "bg", "mk": "bg", "uk": "uk"}.get(_guess(_NO_LETTER.sub(" ", text)), "ru")


def _latin(text: str) -> str:
    language = _guess(text)
    if language == "en" or " " not in text:
        # German borrows from English, and one word says little: the answer must hold against a hint of German.
        language = _guess(text, hint=UNCERTAIN)
    language = CLOSEST.get(language, language)
    return language if language in SPOKEN or len(text) >= SURE_LETTERS else UNCERTAIN


def _guess(text: str, hint: str | None = None) -> str:
    import pycld2

    try:
        _, _, guesses = pycld2.detect(text, bestEffort=True, hintLanguage=hint)
    except (pycld2.error, ValueError):  # it refuses some bytes that are no text
        return UNCERTAIN
    _, code, _, score = guesses[0]
    return code if len(code) == 2 and code != "un" and score >= LOW_SCORE else UNCERTAIN
