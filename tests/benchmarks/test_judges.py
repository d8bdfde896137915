"""Judges of evaluations: of live transcription, on sessions of which everything is known; of speech; of chat.

The contract's table of transcribers is what was heard, by the rule that the product judges by.
"""

import json
import math
import re
from typing import Any

import pytest

from benchmarks.quality import chat
from benchmarks.quality.hour import Turn
from benchmarks.quality.live_score import judged, union, within
from benchmarks.quality.live_session import TRANSCRIPT, Session
from benchmarks.quality.spoken import EARS, FAULTS, SENTENCES, SOUNDS, VOICES, cases, read, report, table
from docs.made.pictures.plots import QUALITY

TEXT = "The parcel weighs five hundred grams and needs a signature."
ONCE = Turn(1.0, 4.0, "en", "F1", TEXT, None)


def session(*turns: tuple[float, float, str], unheard: tuple[tuple[int, int], ...] = ()) -> Session:
    """A session whose pieces were sent in real time; each turn is heard a second after its end."""
    events: list[dict[str, object]] = []
    for number, (begin_s, end_s, text) in enumerate(turns):
        of = {"item_id": f"item_{number}"}
        ledger = {"ledger": {"unheard": [{"start_ms": start, "end_ms": end} for start, end in unheard]}}
        events += [
            of | {"type": "input_audio_buffer.speech_started", "at": begin_s, "audio_start_ms": 1000 * begin_s},
            of | {"type": f"{TRANSCRIPT}.delta", "at": begin_s + 2},
            of | {"type": "input_audio_buffer.speech_stopped", "at": end_s, "audio_end_ms": 1000 * end_s},
            of | {"type": f"{TRANSCRIPT}.completed", "at": end_s + 1, "transcript": text, "parlance": ledger},
        ]
    return Session(sent=[number / 10 for number in range(200)], events=events)


def test_a_turn_that_is_written_down_is_accounted_for() -> None:
    (row,) = judged([ONCE], session((0.7, 4.2, "The parcel weighs 500 grams, and needs a signature")))
    assert (row.wrong, row.lost_s, row.unheard_s) == (0, 0, 0)
    assert row.final_s == pytest.approx(1.2)
    assert row.partial_s == pytest.approx(1.7)


def test_a_turn_of_which_nothing_is_heard_is_lost() -> None:
    (row,) = judged([ONCE], session())
    assert (row.lost_s, row.wrong, row.final_s) == (3.0, row.words, None)


def test_a_run_of_words_that_misses_is_lost_unless_the_ledger_tells_of_it() -> None:
    short = "The parcel weighs 500 grams"
    (silent,) = judged([ONCE], session((0.7, 4.2, short)))
    (told,) = judged([ONCE], session((0.7, 4.2, short), unheard=((2500, 4000),)))
    assert silent.lost_s == pytest.approx(3.0 * 4 / silent.words)
    assert told.lost_s == 0
    assert told.unheard_s == 1.5


def test_words_that_may_be_misheard_are_wrong_and_not_lost() -> None:
    (row,) = judged([ONCE], session((0.7, 4.2, "The parcel weighs 500 grams needs signature")))
    assert (row.wrong, row.lost_s) == (2, 0)


def test_two_who_speak_at_once_share_a_row_and_invented_text_has_its_own() -> None:
    second = Turn(3.5, 6.0, "en", "M1", "Nobody knows.", None, overlaps=True)
    both, invented = judged([ONCE, second], session((0.7, 6.2, f"{TEXT} Nobody knows."), (12.0, 13.0, "Thank you.")))
    assert (both.turns, both.seconds, both.wrong) == (2, 5.0, 0)
    assert (invented.turns, invented.words, invented.wrong, invented.lost_s) == (0, 0, 2, 0)


def test_time_is_counted_once() -> None:
    assert union([(3, 4), (0, 2), (1, 3), (0.2, 0.5)]) == [(0, 4)]
    assert within([(0, 2), (5, 6)], [(1, 5.5)]) == 1.5


class Full:
    """A socket whose server refuses the second piece once, and with it all that were under way."""

    def __init__(self, session: Session) -> None:
        self.session, self.taken, self.refused = session, list[str](), 0

    async def send(self, message: str) -> None:
        event_id = json.loads(message)["event_id"]
        if event_id in ("0-1", "0-2"):
            self.refused += 1
            self.session.take({"type": "error", "error": {"event_id": event_id, "retry_after_ms": 10}})
        else:
            self.taken.append(event_id.partition("-")[2])


async def test_pieces_are_sent_again_in_order_from_the_first_refused_one() -> None:
    session = Session()
    socket = Full(session)
    await session.send(socket, [b"a", b"b", b"c", b"d"], speed=1000)
    assert socket.taken == ["0", "1", "2", "3"]
    assert session.refusals == 1
    assert len(session.sent) == 4


def everywhere(found: int, faults: int, blamed: int, good: int) -> list[dict[str, Any]]:
    """One voice in every language: so many of the faults are heard, and so many of the good sentences differ."""
    heard = {True: "the rain", False: "the heavy rain"}
    same = {"voice": "F1", "text": "the heavy rain", "seconds": 6.0, "heard_s": 1.0, "id": "en-0"}
    ends = [("word", n < found) for n in range(faults)] + [("", n < blamed) for n in range(good)]
    return [
        same | {"language": language, "fault": fault, "heard": heard[is_short]}
        for language in SENTENCES
        for fault, is_short in ends
    ]


def test_the_table_of_the_contract_and_the_page_are_of_what_was_heard_of_these_sentences() -> None:
    sounds, known = read(SOUNDS), {case.id: case for case in cases()}
    assert EARS.read_text("utf-8") == table(sounds), "run `python -m benchmarks.quality spoken --judge`"
    page = (QUALITY / "spoken.md").read_text("utf-8")
    assert [one for one in report(sounds) if one not in page] == []
    for sound in sounds:
        case = known[sound["id"]]
        assert (case.text, case.voice, case.fault) == (sound["text"], sound["voice"], sound["fault"])


def test_every_language_has_a_hundred_sentences_and_each_fault_in_every_voice_is_one() -> None:
    every = list(cases())
    assert len({case.id for case in every}) == len(every) == 1000
    for language, lines in SENTENCES.items():
        of_language = [case for case in every if case.language == language]
        assert len(set(lines)) == 100
        assert {case.fault for case in of_language} == {"", *FAULTS}
        assert {case.voice for case in of_language if not case.fault} == set(VOICES)
    for case in every:
        assert (case.spoken != case.text or case.cut < 1) is bool(case.fault), case
        if case.fault in ("number", "digits"):
            assert re.findall(r"\d+", case.spoken) != re.findall(r"\d+", case.text)


def test_a_voice_is_weak_by_more_than_chance() -> None:
    """One error is chance, two of ten are too many, two of forty are not."""
    weak = {
        (10, 10, 0, 10): False,
        (9, 10, 1, 10): False,
        (8, 10, 0, 10): True,
        (10, 10, 2, 10): True,
        (38, 40, 2, 40): False,
        (40, 40, 3, 40): True,
        (35, 40, 0, 40): True,
    }
    assert {figures: 'weak_voices = ["F1"]' in table(everywhere(*figures)) for figures in weak} == weak


def test_a_call_is_right_with_its_tool_and_its_arguments() -> None:
    called: list[tuple[str, dict[str, Any], bool]] = [
        ("weather", {"city": "Oslo"}, True),
        ("weather", {"city": "oslo, Norway"}, True),
        ("weather", {"city": "Bergen"}, False),
        ("weather", {}, False),
        ("timer", {"city": "Oslo"}, False),
    ]
    row = {"tool": "weather", "arguments": {"city": "Oslo"}}
    judged = [chat.is_call({"name": name, "arguments": json.dumps(given)}, row) for name, given, _ in called]
    assert judged == [is_right for *_, is_right in called]
    row = {"tool": "timer", "arguments": {"minutes": 5}}
    assert [chat.is_call({"name": "timer", "arguments": f'{{"minutes": {n}}}'}, row) for n in (5, 50)] == [True, False]


def test_perplexity_is_compared_token_by_token() -> None:
    first = [-1.0, -2.0, -3.0, -4.0]
    assert chat.against(first, first) == "+0.00% ± 0.00%"
    assert chat.against([figure - math.log(1.1) for figure in first], first) == "+10.00% ± 0.00%"
