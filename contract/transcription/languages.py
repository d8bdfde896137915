"""Languages of recordings: the codes that Whisper knows, and other spellings of the same. Spec 4.

Most are ISO 639-1; Whisper has `jw` for Javanese, `haw` for Hawaiian and `yue` for Cantonese.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from contract.errors import LANGUAGE_NOT_SUPPORTED

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

_TAG = re.compile(r"([a-z]{2,3})([-_][a-z0-9]{1,8})*", re.ASCII | re.IGNORECASE)


def spoken_language(code: str | None, known: Collection[str]) -> str | None:
    """The language that a request names, None where it is to be detected. Regions are cut: `de-DE` is `de`.

    Raises LANGUAGE_NOT_SUPPORTED, with all codes of `known`, for a code that is none of them.
    """
    if code is None or not code.strip() or code.strip().lower() == DETECT:
        return None
    tag = _TAG.fullmatch(code.strip())
    language = tag[1].lower() if tag else ""
    language = ALIASES.get(language, language)
    if language not in known:
        raise LANGUAGE_NOT_SUPPORTED(
            f"language `{code[:40]}` is not one that this model knows; `supported` lists them",
            param="language",
            extra={"supported": sorted(known)},
        )
    return language
