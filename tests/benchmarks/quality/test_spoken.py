"""What the contract says of our ears is what was heard, by the rule that the product judges by."""

from __future__ import annotations

import re
from typing import Any

import pytest

from benchmarks.quality.spoken import EARS, FAULTS, SENTENCES, SOUNDS, VOICES, cases, read, report, table
from docs.made.pictures.plots import QUALITY


def sounds(language: str, voice: str, found: int, faults: int, blamed: int, good: int) -> list[dict[str, Any]]:
    """What was heard of one voice: so many of the faults are heard, and so many of the good sentences differ."""
    same = {"language": language, "voice": voice, "text": "the heavy rain", "seconds": 6.0, "heard_s": 1.0}
    heard = {True: "the rain", False: "the heavy rain"}
    return [{**same, "id": "en-0", "fault": "word", "heard": heard[n < found]} for n in range(faults)] + [
        {**same, "id": "en-0", "fault": "", "heard": heard[n < blamed]} for n in range(good)
    ]


def everywhere(*figures: int) -> list[dict[str, Any]]:
    return [sound for language in SENTENCES for sound in sounds(language, "F1", *figures)]


def test_the_table_of_the_contract_is_what_was_heard() -> None:
    assert EARS.read_text("utf-8") == table(read(SOUNDS)), "run `python -m benchmarks.quality spoken --judge`"


def test_the_page_has_the_tables_of_what_was_heard() -> None:
    page = (QUALITY / "spoken.md").read_text("utf-8")
    for one in report(read(SOUNDS)):
        assert one in page


def test_what_was_heard_is_of_the_sentences_that_stand_here() -> None:
    known = {case.id: case for case in cases()}
    for sound in read(SOUNDS):
        case = known[sound["id"]]
        assert (case.text, case.voice, case.fault) == (sound["text"], sound["voice"], sound["fault"])


def test_every_language_has_a_hundred_sentences_and_every_fault_and_voice() -> None:
    every = list(cases())
    assert len({case.id for case in every}) == len(every) == 1000
    for language, lines in SENTENCES.items():
        of_language = [case for case in every if case.language == language]
        assert len(set(lines)) == 100
        assert {case.fault for case in of_language} == {"", *FAULTS}
        assert {case.voice for case in of_language if not case.fault} == set(VOICES)


def test_a_fault_is_one() -> None:
    for case in cases():
        changed = case.spoken != case.text or case.cut < 1
        assert changed is bool(case.fault), case
        if case.fault in ("number", "digits"):
            assert re.findall(r"\d+", case.spoken) != re.findall(r"\d+", case.text)


@pytest.mark.parametrize(
    ("figures", "weak"),
    [
        ((10, 10, 0, 10), False),
        # One error is chance, two of ten are too many, two of forty are not.
        ((9, 10, 1, 10), False),
        ((8, 10, 0, 10), True),
        ((10, 10, 2, 10), True),
        ((38, 40, 2, 40), False),
        ((40, 40, 3, 40), True),
        ((35, 40, 0, 40), True),
    ],
)
def test_a_voice_is_weak_by_more_than_chance(figures: tuple[int, int, int, int], weak: bool) -> None:
    assert ('weak_voices = ["F1"]' in table(everywhere(*figures))) is weak
