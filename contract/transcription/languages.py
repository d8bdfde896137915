"""Languages of recordings: the codes that Whisper knows, and other spellings of the same.

Most are ISO 639-1; Whisper has `jw` for Javanese, `haw` for Hawaiian and `yue` for Cantonese.
"""

from __future__ import annotations

import re

_CODES = """
af am ar as az ba be bg bn bo br bs ca cs cy da de el en es et eu fa fi fo fr gl gu ha haw he hi hr ht hu hy id is it
ja jw ka kk km kn ko la lb ln lo lt lv mg mi mk ml mn mr ms mt my ne nl nn no oc pa pl ps pt ro ru sa sd si sk sl sn so
sq sr su sv sw ta te tg th tk tl tr tt uk ur uz vi yi yo yue zh
"""

LANGUAGES = tuple(_CODES.split())

ALIASES = {
    "nb": "no",
    "jv": "jw",
    "fil": "tl",
    "iw": "he",
    "in": "id",
    "ji": "yi",
    "mo": "ro",
    "cmn": "zh",
}
"""Other codes of the same languages, older and newer ones."""

DETECT = "auto"

_TAG = re.compile(r"([a-z]{2,3})([-_][a-z0-9]{1,8}){0,8}", re.ASCII | re.IGNORECASE)


def named_language(code: str | None) -> str | None:
    """The language that a request names, in the spelling of LANGUAGES; None where it is to be detected.

    Regions are cut: `de-DE` is `de`. The code need be none of LANGUAGES. Raises ValueError for what is no code.
    """
    code = (code or "").strip()
    if not code or code.lower() == DETECT:
        return None
    tag = _TAG.fullmatch(code)
    if tag is None:
        raise ValueError("it is not a language code; send two letters such as `de`, or `de-DE`")
    language = tag[1].lower()
    return ALIASES.get(language, language)
