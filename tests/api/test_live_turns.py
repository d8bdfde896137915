"""Turns, pace, places and seconds of live sessions without a server: no second is lost or counted twice."""

import base64
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from audio.listener import FRAME, RATE
from contract.errors import ApiError
from contract.realtime.events import Append
from contract.realtime.limits import (
    REALTIME_BUFFER_S,
    REALTIME_IDLE_S,
    REALTIME_SPEED,
    REALTIME_TURN_S,
    REALTIME_UNHEARD_S,
)
from contract.realtime.session import AudioFormat, ServerVad
from deployments.ingress.flows.realtime.notifier import SecondsLedger
from deployments.ingress.flows.realtime.turns import LiveTurn, Pace, TurnChange, TurnDetector
from deployments.ingress.front.live import LiveSessions

FRAME_MS = FRAME * 1000 // RATE


def detector(**settings: float) -> TurnDetector:
    return TurnDetector(ServerVad.model_validate({"type": "server_vad", "prefix_padding_ms": 0} | settings))


def listen(turns: TurnDetector, *passages: tuple[float, int]) -> list[TurnChange]:
    """Changes after frames of each probability."""
    changes: list[TurnChange] = []
    for probability, frames in passages:
        received = turns.position + frames * FRAME
        changes += turns.listen([probability] * frames, received)
    return changes


def test_two_frames_of_speech_are_a_turn_and_one_is_a_click() -> None:
    assert listen(detector(), (0.0, 5), (0.9, 1), (0.0, 20)) == []
    (started, stopped) = listen(detector(), (0.0, 5), (0.9, 2), (0.0, 20))
    assert (started.kind, stopped.kind) == ("started", "stopped")
    assert (stopped.turn.start, stopped.turn.end) == (5 * FRAME, 7 * FRAME + RATE // 5)
    for interrupts in (
        lambda turns: turns.clear(turns.position),
        lambda turns: turns.switch(turns.vad, turns.position),
    ):
        listen(turns := detector(), (0.9, 1))
        interrupts(turns)
        assert listen(turns, (0.9, 1)) == []


def test_silence_ends_a_turn_after_the_time_and_below_the_threshold_of_the_client() -> None:
    for frames, kinds in ((15, ["started"]), (16, ["started", "stopped"])):
        changes = listen(detector(silence_duration_ms=16 * FRAME_MS), (0.9, 10), (0.0, frames))
        assert [change.kind for change in changes] == kinds
    for probability, begins in ((0.69, False), (0.7, True), (0.71, True)):
        assert bool(listen(detector(threshold=0.7), (probability, 10))) is begins


def test_speech_goes_on_at_less_than_it_began_with() -> None:
    (started,) = listen(detector(), (0.6, 10), (0.36, 100))
    assert started.turn.end == 110 * FRAME
    (stopped,) = listen(at := detector(), (0.6, 10), (0.34, 100))[1:]
    assert stopped.kind == "stopped"
    assert at.turn is None


def test_padding_never_reaches_into_the_turn_before() -> None:
    turns = detector(prefix_padding_ms=5000, silence_duration_ms=200)
    changes = listen(turns, (0.9, 10), (0.0, 8), (0.9, 10))
    assert [change.kind for change in changes] == ["started", "stopped", "started"]
    assert changes[2].turn.start == changes[1].turn.end


def test_a_turn_that_is_too_long_is_cut_where_it_is_most_silent() -> None:
    frames = REALTIME_TURN_S * RATE // FRAME + 1
    before = frames - 40
    started, stopped, again, *_ = listen(detector(), (0.9, before), (0.4, 1), (0.9, 200))
    assert [started.kind, stopped.kind, again.kind] == ["started", "stopped", "started"]
    assert stopped.turn.end == again.turn.start == (before + 1) * FRAME
    assert again.turn is not stopped.turn
    # Cut in its last silence it has none behind it; cut while somebody speaks it goes on in the next.
    started, stopped = listen(detector(), (0.9, frames - 5), (0.1, 4), (0.05, 40))
    assert (started.kind, stopped.kind, stopped.turn.end) == ("started", "stopped", frames * FRAME)
    started, stopped, again = listen(detector(), (0.9, frames - 1), (0.4, 30))
    assert (stopped.kind, again.kind, again.turn.end) == ("stopped", "started", (frames + 29) * FRAME)


def test_the_last_hundred_pieces_without_a_text_are_listed_and_all_are_counted() -> None:
    ledger = SecondsLedger()
    for number in range(101):
        ledger.open(turn := LiveTurn(number * RATE, (number + 1) * RATE, number * RATE))
        ledger.mark_untranscribed(turn, "cleared", owes_begun=False)
        shown = ledger.object()
        starts = [piece["start_ms"] for piece in shown["unheard"]]
        assert (len(starts), starts[-1], shown["unheard_s"]) == (min(number + 1, 100), 1000 * number, number + 1)


def test_times_hold_though_listeners_die() -> None:
    turns, received = detector(), 0
    for _ in range(20):  # each forgets 300 samples that were no frame yet
        received += 2 * FRAME + 300
        list(turns.listen([0.0] * 2, received))
    (started,) = turns.listen([0.9] * 3, received + 3 * FRAME)
    assert received - FRAME < started.turn.start <= received


def test_a_turn_after_a_dead_listener_has_no_sound_that_has_not_come() -> None:
    turns, received = detector(), 300
    assert list(turns.listen([], received)) == []  # 300 samples that the next listener does not get
    for samples, frames in ((FRAME - 1, 0), (1, 1), (FRAME - 1, 0), (1, 1)):
        received += samples
        list(turns.listen([0.9] * frames, received))
        assert received - FRAME < turns.position <= received
    assert turns.turn
    assert turns.turn.end <= received


def test_without_detection_all_sound_is_the_clients() -> None:
    turns = TurnDetector(None)
    (started,) = turns.listen([0.0] * 3, 3 * FRAME)
    turns_on = list(turns.listen([0.0], 4 * FRAME + 7))
    assert (turns_on, started.turn.start, started.turn.end) == ([], 0, 4 * FRAME + 7)
    assert turns.commit(started.turn, 4 * FRAME + 7).turn.is_closed
    (again,) = turns.listen([0.9], 5 * FRAME)
    assert again.turn.start == 4 * FRAME + 7


def test_the_length_of_an_event_says_how_long_its_sound_is() -> None:
    for rate, sound in ((8000, 1), (16_000, 2), (44_100, 4), (48_000, 5)):
        samples, format = bytes(2 * sound), AudioFormat(type="audio/pcm", rate=rate)
        event = Append(type="input_audio_buffer.append", audio=base64.b64encode(samples).decode())
        assert (event.seconds(format), event.sound(format)) == (sound / rate, samples)


def takes(pace: Pace, seconds: float, waiting_s: float = 0.0, at_s: float = 0.0) -> bool:
    try:
        pace.take(seconds, waiting_s, at_s)
    except ApiError:
        return False
    return True


def test_what_fits_ahead_of_real_time() -> None:
    for waiting_s, seconds, fits in ((0, 30, 1), (0, 30.001, 0), (29, 1, 1), (29, 1.001, 0), (10_000, 1, 0)):
        pace = Pace()
        assert not waiting_s or takes(pace, 29.0)
        assert takes(pace, seconds, waiting_s) == bool(fits)


def test_silence_may_come_ten_times_as_fast_as_speech_and_at_once_up_to_the_buffer() -> None:
    for speed, fits in ((REALTIME_SPEED - 1, True), (REALTIME_SPEED, True), (11, False)):
        pace = Pace()
        assert all(takes(pace, 1.0, at_s=second / speed) for second in range(120 * speed)) is fits
    for seconds, fits in ((0.999, True), (1.0, True), (1.001, False)):
        pace = Pace()
        pace.take(REALTIME_BUFFER_S - 1.0, 0.0, 0.0)
        with nullcontext() if fits else pytest.raises(ApiError, match="too early; it may come 10 times as fast"):
            pace.take(seconds, 0.0, 0.0)


def test_what_is_sent_behind_refused_sound_is_refused_too() -> None:
    pace = Pace()
    pace.take(30.0, 0.0, 0.0)
    with pytest.raises(ApiError) as first:
        pace.take(1.0, 30.0, 0.0)
    again_s = first.value.extra["retry_after_ms"] / 1000
    assert not takes(pace, 1.0, at_s=again_s - 0.001)
    assert takes(pace, 1.0, at_s=again_s)


def test_the_pace_of_speech_is_never_ahead() -> None:
    pace = Pace()
    for second in range(200):
        pace.take(1.0, min(REALTIME_UNHEARD_S - 1.0, second), float(second))


@dataclass(eq=False)
class Place:
    """A session that was idle for some time, and leaves at once."""

    idle_s: float = 0.0
    left: str = ""

    def leave(self, why: str) -> None:
        self.left = why


@pytest.mark.parametrize(
    ("idle_s", "left"),
    [
        ({1: (REALTIME_IDLE_S - 1, 0), 2: (0,)}, None),
        ({1: (REALTIME_IDLE_S, 0), 2: (0,)}, (1, 0)),
        ({1: (0, REALTIME_IDLE_S + 1), 2: (0,)}, (1, 1)),
        ({1: (200, 201), 2: (999,)}, (1, 1)),
        ({1: (0, 0), 2: (999,)}, (2, 0)),
    ],
)
def test_an_idle_session_gives_its_place_to_a_new_one(idle_s: dict[int, Sequence[float]], left: Any) -> None:
    sessions, places = LiveSessions(most=4), dict[tuple[int, int], Place]()
    with ExitStack() as stack:
        for organisation, times in (idle_s | {3: (0,)}).items():
            for number, seconds in enumerate(times):
                place = places[organisation, number] = Place(seconds)
                stack.enter_context(sessions.session(organisation, place))
        with nullcontext() if left else pytest.raises(ApiError):
            stack.enter_context(sessions.session(4, Place()))
        assert [name for name, place in places.items() if place.left] == ([left] if left else [])
        assert len(sessions) == 4
    assert (len(sessions), sessions._organisations.total) == (0, 0)
