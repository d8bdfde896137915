"""Text to the phonemes that Kokoro was trained with. espeak-ng reads; its IPA is spelled as the training data was.

    runs("It's 7:30, isn't it?", "en-us")       ["ɪts sˈɛvən θˈɜɹTi, ˈɪzənt ɪt?"]

The training data writes a diphthong or an affricate as one letter, and keeps the signs that carry the melody.
"""

from __future__ import annotations

from collections.abc import Iterator

import regex

from models.espeak import library
from models.espeak.library import TIE
from text.sentences import ends_sentence

RUN_PHONEMES = 220
"""Longest run of the network, some 16 s of sound: longer ones sound hurried, and others wait for their turn."""

_JOINED = {
    "a^ɪ": "I", "a^ʊ": "W", "e^ɪ": "A", "o^ʊ": "O", "ə^ʊ": "Q", "ɔ^ɪ": "Y",
    "t^ʃ": "ʧ", "d^ʒ": "ʤ", "t^s": "ʦ", "d^z": "ʣ", "tʃ": "ʧ", "dʒ": "ʤ",
}  # fmt: skip

_ENGLISH = {
    "ə^l": "ᵊl", "ʔˌn̩": "tᵊn", "ʔn̩": "tᵊn", "n̩": "ᵊn", "l̩": "ᵊl", "ʔ": "t", "ɚ": "əɹ", "r": "ɹ", "x": "k",
    "ç": "k", "ɬ": "l", "ɐ": "ə", "̃": "",
}  # fmt: skip

_AMERICAN = {"ɜːɹ": "ɜɹ", "ɜː": "ɜɹ", "ɪə": "iə", "ɾ": "T", "ː": ""}
_BRITISH = {"e^ə": "ɛː", "i^ə": "ɪə", "iə": "ɪə"}

_GERMAN = {"ʏ": "y", "ɜ": "ɐ", "r": "ʁ", "ɾ": "ʁ", "ɑː": "aː", "ʊ^ɐ": "ʊɐ", "ɔ^ø": "Y", "p^f": "pf"}
"""The network was not trained on German: these are the nearest of what it learned from French and others."""

SPELLING: dict[str, tuple[dict[str, str], ...]] = {
    "en-us": (_JOINED, _ENGLISH, _AMERICAN),
    "en": (_BRITISH, _JOINED, _ENGLISH),
    "de": (_GERMAN, _JOINED),
}
"""espeak's name of a language to what replaces what, in order. Others have `_JOINED`."""

_SIGNS = {".": "।॥。", "!": "！", "?": "？؟", ",": "，、", ";": "；", ":": "：", "—": "–"}
"""Signs that the network knows, and the signs of other scripts that become them."""

_SIGN_FOR = {sign: known for known, signs in _SIGNS.items() for sign in signs}
_KNOWN_SIGNS = ".,!?;:—…"
_CLOSING = regex.compile(r"[\p{Pe}\p{Pf}\p{Pi}\"'\s]+$")
_OTHER_LANGUAGE = regex.compile(r"\([a-z^-]+\)")


def runs(text: str, voice: str) -> list[str]:
    """Phonemes of a sentence, as few texts as there are runs of the network. Empty where nothing can be spoken.

    Args:
        text: some hundred characters at most.
        voice: espeak's name for the language, e.g. `en-us`.
    """
    texts: list[str] = []
    for clause in _clauses(text, voice):
        if texts and len(texts[-1]) + len(clause) + 1 <= RUN_PHONEMES:
            texts[-1] += f" {clause}"
        else:
            texts.append(clause)
    return texts


def _clauses(text: str, voice: str) -> Iterator[str]:
    """The phonemes of each clause with the sign that ends it, none longer than a run."""
    clauses = library.clauses(text, voice)
    for number, clause in enumerate(clauses, 1):
        spelled = _spelled(clause.phonemes, voice)
        if not spelled:
            continue
        *whole, rest = _cut(spelled)
        yield from whole
        yield rest + _sign(clause.text, is_last=number == len(clauses))


def _spelled(phonemes: str, voice: str) -> str:
    phonemes = _OTHER_LANGUAGE.sub("", phonemes)
    for table in SPELLING.get(voice, (_JOINED,)):
        for old, new in table.items():
            phonemes = phonemes.replace(old, new)
    return " ".join(phonemes.replace(TIE, "").replace("-", "").replace("\u0329", "").split())


def _sign(text: str, *, is_last: bool) -> str:
    """Marks that end a clause for the network."""
    text = _CLOSING.sub("", text)
    # espeak ends a clause at abbreviations, too.
    if not is_last and text.endswith(".") and not ends_sentence(text):
        return ""
    if text.endswith(("...", "…")):
        return "…"
    sign = _SIGN_FOR.get(text[-1:], text[-1:])
    return sign if sign and sign in _KNOWN_SIGNS else ""


def _cut(phonemes: str) -> list[str]:
    """Pieces that are no longer than a run, cut between words where there are any."""
    pieces: list[str] = []
    while len(phonemes) >= RUN_PHONEMES:
        cut = phonemes.rfind(" ", RUN_PHONEMES // 2, RUN_PHONEMES)
        cut = RUN_PHONEMES - 1 if cut < 0 else cut
        pieces.append(phonemes[:cut])
        phonemes = phonemes[cut:].lstrip()
    return [*pieces, phonemes]
