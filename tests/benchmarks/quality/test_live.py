"""The judge of live ears, on sessions of which everything is known."""

import json
import random

import numpy as np
import pytest

from benchmarks.quality.hour import SAMPLE_RATE, Clip, Turn, lay
from benchmarks.quality.live_score import judged, union, within
from benchmarks.quality.live_session import TRANSCRIPT, Session

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
    assert union([(3, 4), (0, 2), (1, 3)]) == [(0, 4)]
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


def test_a_track_has_the_turns_that_it_names() -> None:
    clip = Clip("en", "F1", TEXT, np.full(3 * SAMPLE_RATE, 0.5, np.float32))
    turns, track = lay([clip], 120, random.Random(0))
    assert len(track) == 120 * SAMPLE_RATE
    assert {turn.noise_db for turn in turns} == {None, 20.0}
    quiet = [turn for turn in turns if turn.end_s < 60]
    assert all(track[int(turn.begin_s * SAMPLE_RATE) + 1] >= 0.5 for turn in quiet)
    silence = union((turn.begin_s, turn.end_s) for turn in quiet)
    assert not track[int(silence[0][1] * SAMPLE_RATE) + 2 : int(silence[1][0] * SAMPLE_RATE) - 2].any()
    assert lay([clip], 120, random.Random(0))[0] == turns
