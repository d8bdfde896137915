"""Turns of a session, and its samples: 16-bit, 16 kHz, one channel. Positions are samples from the first one on.

A turn begins and ends by the probability of speech in frames of 32 ms.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from audio.listener import FRAME, RATE
from autoscaling.engine import Timings
from contract.errors import BUFFER_FULL, ApiError
from contract.ids import random_id
from contract.realtime.limits import REALTIME_BUFFER_S, REALTIME_SPEED, REALTIME_TURN_S, REALTIME_UNHEARD_S
from contract.realtime.session import ServerVad
from contract.speech.engine import Clip
from deployments.ingress.verifier import wav

MS = RATE // 1000
"""Samples of a millisecond."""

ONSET_FRAMES = 2
"""Frames of speech that begin a turn: a click is shorter."""

HYSTERESIS = 0.15
"""Speech continues at a probability that is lower by this than the one that began it."""

TAIL_MS = 200
"""Silence after the last speech that is transcribed with it, and after which a turn is likely to be over."""

LOOK_BACK_FRAMES = 3 * RATE // FRAME
"""Last frames of a turn that is too long, which is cut at the most silent of them."""


@dataclass(slots=True, eq=False)
class LiveTurn:
    """Sound that is transcribed at once, and becomes an item of the conversation.

    Attributes:
        start, end: of its sound. The end grows until it `is_closed`.
        spoken_from: position of the first speech.
        is_paused: whether the last speech is TAIL_MS ago, and the turn likely to be over.
        draft, draft_end: text of the last draft, and the end of its sound.
        sent, reported_until: words that the client has, and the end of their sound.
        begun_until: end of the sound that engines had begun before the last call.
        call: timings of the last call, and the end of its sound; None where it has failed.
        is_counted: whether it is counted as a request of its key.
    """

    start: int
    end: int
    spoken_from: int
    is_closed: bool = False
    is_paused: bool = False
    draft: str | None = None
    draft_end: int = 0
    sent: int = 0
    reported_until: int = 0
    begun_until: int = 0
    call: tuple[Timings, int] | None = None
    is_counted: bool = False
    item_id: str = field(default_factory=lambda: f"item_{random_id()}")

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / RATE

    def begin(self, timings: Timings, end: int) -> None:
        """Notes a call about the sound up to `end`. Sound that the call before it had begun stays owed."""
        self.begun_until, self.call = self.owed_until, (timings, end)

    @property
    def owed_until(self) -> int:
        """End of the sound that an engine has begun to transcribe, or of which the client has words."""
        begun = self.call[1] if self.call and self.call[0].was_sent else 0
        return max(self.reported_until, self.begun_until, begun)


class TurnChange(NamedTuple):
    """A turn has started or stopped."""

    kind: Literal["started", "stopped"]
    turn: LiveTurn


class TurnDetector:
    """Finds turns. One without voice activity detection takes all sound for one turn, until it is committed.

    Attributes:
        turn: open turn, None in silence.
        position: up to where frames were looked at.
    """

    def __init__(self, vad: ServerVad | None, position: int = 0) -> None:
        self.vad = vad
        self.turn: LiveTurn | None = None
        self.position = position
        self._free_from = position
        self._onset = 0
        self._last_speech = position
        self._recent: deque[float] = deque(maxlen=LOOK_BACK_FRAMES)

    @property
    def needed_from(self) -> int:
        """Sound before this is in no turn to come."""
        if self.turn:
            return self.turn.start
        padding = self.vad.prefix_padding_ms * MS if self.vad else 0
        return max(self._free_from, self.position - padding - (ONSET_FRAMES + 1) * FRAME)

    def listen(self, probabilities: Sequence[float], received: int) -> Iterator[TurnChange]:
        """Yields the turns that these frames begin and end; there is sound up to `received`."""
        # A listener that was replaced forgot what was no whole frame yet; no frame ends after `received` for that.
        self.position += (received - len(probabilities) * FRAME - self.position) // FRAME * FRAME
        for probability in probabilities:
            self.position += FRAME
            if self.vad:
                yield from self._frame(probability, self.vad)
        if self.vad is None and received > self._free_from:
            if self.turn is None:
                self.turn = LiveTurn(self._free_from, received, self._free_from)
                yield TurnChange("started", self.turn)
            self.turn.end = received

    def switch(self, vad: ServerVad | None, received: int) -> None:
        """Finds turns by other rules from now on, between two turns."""
        self.vad, self._onset = vad, 0
        self._free_from = max(self._free_from, received)

    def commit(self, turn: LiveTurn, received: int) -> TurnChange:
        """Ends the open turn now, at the request of the client."""
        turn.end = received
        return self._close(turn)

    def clear(self, received: int) -> LiveTurn | None:
        """Drops the open turn, and returns it."""
        turn, self.turn, self._onset = self.turn, None, 0
        self._free_from = received
        if turn:
            turn.end, turn.is_closed = received, True
        return turn

    def _frame(self, probability: float, vad: ServerVad) -> Iterator[TurnChange]:
        self._recent.append(probability)
        if self.turn is None:
            self._onset = self._onset + 1 if probability >= vad.threshold else 0
            if self._onset == ONSET_FRAMES:
                began = self.position - ONSET_FRAMES * FRAME
                self._last_speech = self.position
                start = max(self._free_from, began - vad.prefix_padding_ms * MS)
                self.turn = LiveTurn(start, max(start, self.position), began)
                yield TurnChange("started", self.turn)
            return
        turn = self.turn
        if probability >= max(vad.threshold - HYSTERESIS, 0.01):
            self._last_speech = self.position
        silence_ms = (self.position - self._last_speech) // MS
        # Where sound was committed or cleared within a frame, the turn begins in that frame.
        turn.end = max(turn.start, min(self.position, self._last_speech + TAIL_MS * MS))
        turn.is_paused = silence_ms >= TAIL_MS
        if silence_ms >= vad.silence_duration_ms:
            yield self._close(turn)
        elif self.position - turn.start >= REALTIME_TURN_S * RATE:
            yield from self._cut(turn)

    def _cut(self, turn: LiveTurn) -> Iterator[TurnChange]:
        """Ends a turn that is too long at its most silent moment; speech that comes after is the next one."""
        since = min(range(len(self._recent)), key=self._recent.__getitem__)
        turn.end = max(turn.start, self.position - (len(self._recent) - since - 1) * FRAME)
        yield self._close(turn)
        if self._last_speech > turn.end or self._last_speech == self.position:
            self.turn = LiveTurn(turn.end, self.position, turn.end)
            yield TurnChange("started", self.turn)

    def _close(self, turn: LiveTurn) -> TurnChange:
        turn.is_closed, self.turn, self._onset = True, None, 0
        self._free_from = turn.end
        return TurnChange("stopped", turn)


PAUSE_S = (1.0, 5.0)
"""Seconds for which nothing is taken once too much waits, at least and at most."""


class SessionSound:
    """Samples that were received last, from `start` to `end`."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self._samples = bytearray()

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / RATE

    def add(self, samples: bytes) -> None:
        """Appends samples."""
        self._samples += samples
        self.end += len(samples) // 2

    def forget_before(self, position: int) -> None:
        """Drops the samples before a position."""
        if position > self.start:
            del self._samples[: 2 * (position - self.start)]
            self.start = position

    def wav(self, start: int, end: int) -> bytes:
        """A WAV file of a part."""
        samples = self._samples[2 * (start - self.start) : 2 * (end - self.start)]
        return wav(Clip(bytes(samples), RATE))


class Pace:
    """Sound of one session ahead of real time. What comes as fast as people speak is never ahead.

    Sound that does not wait to be transcribed, as silence, may come REALTIME_SPEED times as fast.

    After a refusal nothing is taken before the time that it named: what a client has sent behind the refused sound is
    refused with it, so that the client can send all of it again in order.
    """

    def __init__(self) -> None:
        self._ahead_s = self._rushed_s = self._at_s = self._closed_until_s = 0.0

    def take(self, seconds: float, waiting_s: float, now_s: float) -> None:
        """Counts that many seconds of sound, while `waiting_s` wait for a transcript.

        Raises BUFFER_FULL, and counts nothing then.
        """
        if seconds > REALTIME_BUFFER_S:
            raise BUFFER_FULL(f"{seconds:.1f} s of sound came at once; send at most {REALTIME_BUFFER_S} s in an event")
        if now_s < self._closed_until_s:
            raise _full("sound before this was not taken", self._closed_until_s - now_s)
        passed_s = now_s - self._at_s
        ahead_s = max(0.0, self._ahead_s - passed_s) + seconds
        rushed_s = max(0.0, self._rushed_s - REALTIME_SPEED * passed_s) + seconds
        excess_s = min(ahead_s, waiting_s + seconds) - REALTIME_BUFFER_S
        if excess_s > 0:
            state = f"{waiting_s:.1f} s of sound wait, ahead of real time; {REALTIME_BUFFER_S} s may"
            raise self._closed(state, excess_s, now_s)
        if (excess_s := rushed_s - REALTIME_BUFFER_S) > 0:
            state = f"sound came {excess_s:.1f} s too early; it may come {REALTIME_SPEED} times as fast as speech"
            raise self._closed(state, excess_s / REALTIME_SPEED, now_s)
        if waiting_s + seconds > REALTIME_UNHEARD_S:
            state = f"{waiting_s:.1f} s of sound wait to be committed or transcribed; {REALTIME_UNHEARD_S} s may"
            raise self._closed(state, PAUSE_S[1], now_s)
        self._ahead_s, self._rushed_s, self._at_s = ahead_s, rushed_s, now_s

    def _closed(self, state: str, wait_s: float, now_s: float) -> ApiError:
        wait_s = min(max(wait_s, PAUSE_S[0]), PAUSE_S[1])
        self._closed_until_s = now_s + wait_s
        return _full(state, wait_s)


def _full(state: str, wait_s: float) -> ApiError:
    return BUFFER_FULL(
        f"{state}. This sound was not taken: send it again",
        param="audio",
        extra={"retry_after_ms": math.ceil(1000 * wait_s)},
    )
