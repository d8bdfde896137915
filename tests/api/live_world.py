"""The world of one live session in virtual time: what finds its speech, its engine, and its client.

Each sample differs from all others, so that the engine knows which part of the session it was given; its text begins
with that part's start and ends with its end. What a session owes is counted from these parts and the turns' events.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from audio.listener import FRAME, RATE, Frames
from contract.errors import FAULTS
from contract.transcription.engine import Segment, TranscriptionJob, TranscriptUpdate
from state.billing.reservation import TIME_LIMITS
from tests.api.asgi import http_scope
from tests.api.conftest import Api, app_over
from tests.api.live import Event, check

T = TypeVar("T")

MS = RATE // 1000
MOST_S = 200
"""Seconds of sound that a session gets."""
_NOISE, _ONES = int.from_bytes(random.Random(0).randbytes(2 * RATE * MOST_S)), int.from_bytes(b"\1\0" * RATE * MOST_S)
SPEECH = (_NOISE | _ONES).to_bytes(2 * RATE * MOST_S)
SILENCE = (_NOISE & ~_ONES).to_bytes(2 * RATE * MOST_S)
"""Samples without a 1 in their first byte."""
FRAME_ONES = int.from_bytes(b"\1\0" * FRAME)
WORD = 128
"""Samples of a word: a draft of one frame more has more words."""
OF_ITEM = re.compile("(s(d*(ec?|eca|ecaod*[KF]?)?)|c|ca|caod*[KF]?)")
"""Events of an item, in order: started, delta, stopped, committed, added, done, completed, failed."""
LETTERS = {"speech_started": "s", "speech_stopped": "e", "committed": "c", "added": "a", "done": "o"}
LETTERS |= {"delta": "d", "completed": "K", "failed": "F"}


class NumberedListener:
    """Finds speech by the samples.

    Attributes:
        sound: all samples that it took of the session.
        delay_s: of the next answer; failure: it raises that instead.
    """

    def __init__(self) -> None:
        self.open, self.sound, self.delay_s = 0, bytearray(), 0.0
        self.failure: type[Exception] | None = None
        self._rest = b""

    def stream(self, format: Any, owner: str) -> NumberedListener:
        self.open += 1
        self._rest = b""
        return self

    async def listen(self, sound: bytes) -> Frames:
        delay_s, self.delay_s = self.delay_s, 0.0
        await asyncio.sleep(delay_s)
        if failure := self.failure:
            self.failure, self._rest = None, b""
            raise failure
        self.sound += sound
        waiting = self._rest + sound
        whole = len(waiting) // (2 * FRAME) * 2 * FRAME
        self._rest = waiting[whole:]
        frames = (waiting[start : start + 2 * FRAME] for start in range(0, whole, 2 * FRAME))
        return sound, [float(int.from_bytes(frame) & FRAME_ONES != 0) for frame in frames]

    async def end(self) -> Frames:
        self.open -= 1
        return b"", ()

    async def close(self) -> None:
        pass


@dataclass(eq=False)
class Call:
    """A part of the session that the engine was given, and how the call ended."""

    start: int
    end: int
    outcome: str = "left"

    @property
    def words(self) -> int:
        """Words of its text, but for the last one."""
        return 1 + (self.end - self.start) // WORD

    @property
    def text(self) -> str:
        return " ".join([str(self.start), *["word"] * (self.words - 1), f"to-{self.end}"])


class NumberedTranscriber:
    """An adapter that knows what it was given.

    Attributes:
        answer: gives its error, or None; is_silent: its texts are empty; delay_s: until its answer.
        calls: of the session, in order; answered: the last one with an answer.
    """

    def __init__(self, listener: NumberedListener) -> None:
        self.answer: Callable[[], Exception] | None = None
        self.is_silent, self.delay_s = False, 0.3
        self.calls: list[Call] = []
        self.answered = Call(0, 0)
        self._listener = listener

    async def transcribe(self, job: TranscriptionJob) -> AsyncGenerator[TranscriptUpdate, None]:
        assert isinstance(job.audio, bytes)
        samples = job.audio[44:]
        # A turn follows the last one, or is asked for again: few samples are found in the noise before it, too.
        last, find = self.calls[-1] if self.calls else Call(0, 0), self._listener.sound.find
        start = next((at for since in (last.end, last.start, 0) if (at := find(samples, 2 * since)) >= 0), -1) // 2
        assert start >= 0, "samples that never came, or not in this order"
        call = Call(start, start + len(samples) // 2)
        self.calls.append(call)
        answer, text = self.answer, "" if self.is_silent else call.text
        yield TranscriptUpdate(1.0)
        await asyncio.sleep(self.delay_s)
        call.outcome = "failed" if answer else "answered"
        if answer:
            raise answer()
        self.answered = call
        yield TranscriptUpdate(1.0, 1.0, "en", (Segment(text, 0.0, 1.0),))


@dataclass
class Item:
    """A turn, as its events show it.

    Attributes:
        start, end: where it may start and end: events round to milliseconds.
        why: it stays without a text.
        calls_before: calls of the engine before it was committed; calls: before it was over.
    """

    start: range
    end: range = range(0)
    events: str = ""
    deltas: str = ""
    calls_before: int = 0
    calls: int | None = None
    text_of: Call | None = None
    why: str = ""

    @property
    def is_over(self) -> bool:
        return self.calls is not None


@dataclass
class Client:
    """One session through the websocket of the app, and what its events say.

    Attributes:
        events: all, in the order in which the server sent them.
        items: by their ids; open: the one that speech has begun; before: the one that was committed last.
        boundary: end of the last turn, where the client ends them.
        answers: errors by the event that they are about; sent: speech or not, from where to where, by events.
    """

    listener: NumberedListener
    engine: NumberedTranscriber
    events: list[Event] = field(default_factory=list)
    items: dict[str, Item] = field(default_factory=dict)
    open: Item | None = None
    before: str | None = None
    boundary: int = 0
    boundaries: set[int] = field(default_factory=set)
    detection: Any = None
    answers: dict[str, Event] = field(default_factory=dict)
    sent: dict[str, tuple[bool, int, int]] = field(default_factory=dict)
    status: int = 0
    code: int | None = None
    ledger: Event | None = None
    failure: AssertionError | None = None
    is_ending: bool = False
    is_refused: bool = False
    may_crash: bool = False
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    inbox: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)

    @property
    def received(self) -> int:
        return len(self.listener.sound) // 2

    @property
    def is_over(self) -> bool:
        """It answers no more: it was closed, has left, or is not read."""
        return self.code is not None or self.serving.done() or not self.reads.is_set()

    def connect(self, api: Api, key: str) -> None:
        self.reads.set()
        self.inbox.put_nowait({"type": "websocket.connect"})
        headers = [(b"authorization", f"Bearer {key}".encode())]
        scope = http_scope("GET", "/v1/realtime", headers, b"intent=transcription")
        scope |= {"type": "websocket", "subprotocols": [], "extensions": {"websocket.http.response": {}}}
        self.serving = asyncio.create_task(app_over(api.service)(scope, self.inbox.get, self._send), name="socket")

    async def ask(self, message: str | bytes, *, waits: bool = True) -> list[Event]:
        """Sends a message; the events until it is carried out."""
        count, done = len(self.events), asyncio.Event()
        kind = "bytes" if isinstance(message, bytes) else "text"
        self.inbox.put_nowait({"type": "websocket.receive", kind: message, "done": done.set})
        if waits:
            waiting = asyncio.create_task(done.wait())
            await asyncio.wait({self.serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        return self.events[count:]

    async def _send(self, message: Any) -> None:
        match message["type"]:
            case "websocket.accept":
                self.status = 101
            case "websocket.http.response.start":
                self.status = message["status"]
            case "websocket.close":
                self.code = message["code"]
                self.inbox.put_nowait({"type": "websocket.disconnect", "code": self.code})
            case "websocket.send":
                try:
                    self._note(json.loads(message["text"]))
                except AssertionError as error:
                    self.failure = error  # which the server would take for its own
                await self.reads.wait()

    def _note(self, event: Event) -> None:
        assert self.code is None
        assert self.ledger is None, "an event after the last ledger"
        check(event)
        self.events.append(event)
        if letter := LETTERS.get(event["type"].rpartition(".")[2]):
            self._note_item(event, letter)
        match event["type"]:
            case "session.created" | "session.updated":
                if event["session"]["audio"]["input"]["turn_detection"] != self.detection:
                    self._bound()
                self.detection = event["session"]["audio"]["input"]["turn_detection"]
            case "input_audio_buffer.cleared":
                if item := self.undetected():
                    self.items[f"cleared {len(self.items)}"] = self.open = item
                if self.open:
                    self._end(self.open, "cleared", range(self.received, self.received + 1))
                self._bound()
            case "parlance.session.expiring":
                self.is_ending = True
            case "parlance.session.ledger":
                self._check_ledger(event["ledger"])
                self.ledger = event["ledger"] if event["is_last"] else None
            case "error":
                self.answers[event["error"]["event_id"]] = event["error"]
                self.is_refused |= event["error"]["code"] in ("org_spend_limit", "invalid_api_key")

    def undetected(self) -> Item | None:
        """The turn that a client would commit or clear now, of which no event has told."""
        if self.detection or self.received == self.boundary:
            return None
        return Item(range(self.boundary, self.boundary + 1), range(self.received, self.received + 1))

    def _bound(self) -> None:
        self.boundary = self.received
        self.boundaries.add(self.received)
        self.open = None

    def _note_item(self, event: Event, letter: str) -> None:
        id = event["item_id"] if "item_id" in event else event["item"]["id"]
        if letter == "s":
            assert self.open is None
            self.open = self.items[id] = Item(_rounded(event["audio_start_ms"]))
        if letter == "c":
            if id not in self.items:
                item = self.undetected()
                assert item
                self.items[id] = item
            self._bound()
            assert event["previous_item_id"] == self.before
            self.before = id
            self.items[id].calls_before = len(self.engine.calls)
        item = self.items[id]
        item.events += letter
        assert OF_ITEM.fullmatch(item.events), item
        assert not item.is_over, item
        match letter:
            case "e":
                item.end = _rounded(event["audio_end_ms"])
            case "d":
                item.deltas += event["delta"]
            case "F":
                self._end(item, event["error"]["code"])
            case "K":
                self._end(item)
                item.text_of = call = self.engine.answered
                assert event["transcript"] in ("", call.text)
                assert call.start in item.start
                assert call.end in item.end
                assert event["usage"]["seconds"] == math.ceil((call.end - call.start) / RATE)
                words = event["transcript"].split()
                assert item.deltas.split()[: len(words)] == words

    def _end(self, item: Item, why: str = "", end: range = range(0)) -> None:
        item.calls, item.why, item.end = len(self.engine.calls), why, end or item.end

    def _calls(self, item: Item) -> list[Call]:
        return [call for call in self.engine.calls if call.start in item.start]

    def heard_until(self, item: Item) -> tuple[int, int]:
        """End of the sound whose words the client has."""
        calls = self._calls(item)
        if item.text_of:
            return item.text_of.start, item.text_of.end
        start, words = calls[0].start if calls else item.start.start, len(item.deltas.split())
        if not words:
            return start, start
        (end,) = {call.end for call in calls if call.outcome == "answered" and call.words == words}
        return start, end

    def unheard(self, item: Item) -> range:
        """So many samples of a turn that is over have no words at the client."""
        _, heard = self.heard_until(item)
        if item.text_of:
            return range(1)
        if not item.end:  # its client has left in its midst
            return range(max([heard, *(call.end for call in self._calls(item))]) - heard, self.received - heard + 1)
        return range(item.end.start - heard - len(item.start) + 1, item.end.stop - heard)

    def owed_samples(self, item: Item) -> int:
        """Samples that the client owes, by `docs/live-sessions.md`."""
        start, end = self.heard_until(item)
        fault = next((fault for fault in FAULTS.values() if fault.code == item.why), None)
        has_crashed = self.code == 1011 and not item.is_over
        if item.text_of or has_crashed or (fault and fault.status >= 500 and fault not in TIME_LIMITS):
            return end - start
        # The call that a time limit ended has failed; a draft that the turn's end has ended has not.
        failed = self.engine.calls[item.calls_before :] if fault in TIME_LIMITS else []
        begun = [call.end for call in self._calls(item) if call.outcome != "failed" and call not in failed]
        return max([end, *begun]) - start

    def check_account(self, items: Sequence[Item], heard: int, unheard: int, billed_s: int) -> None:
        """These are the sums of these turns, which are over."""
        for item in items:
            late = self.engine.calls[item.calls :] if item.is_over else []
            assert not [call for call in late if call.start in item.start], "a call about a turn that was over"
        assert heard == sum(end - start for start, end in map(self.heard_until, items))
        ranges = [self.unheard(item) for item in items]
        assert sum(each.start for each in ranges) <= unheard <= sum(each.stop - 1 for each in ranges), (unheard, items)
        owed = [self.owed_samples(item) for item in items]
        assert billed_s == sum(math.ceil(samples / RATE) for samples in owed), (billed_s, owed, items)

    def _check_ledger(self, ledger: Event) -> None:
        samples = {name: round(RATE * value) for name, value in ledger.items() if name != "unheard"}
        assert samples["received_s"] == self.received == samples["speech_s"] + samples["silence_s"]
        assert samples["speech_s"] == samples["heard_s"] + samples["unheard_s"] + samples["pending_s"]
        over = [item for item in self.items.values() if item.is_over]
        waiting = [item for item in [*self.items.values(), self.undetected()] if item and item.end and item not in over]
        assert samples["pending_s"] >= sum(item.end.start - item.start.stop + 1 for item in waiting)
        self.check_account(over, samples["heard_s"], samples["unheard_s"], ledger["billed_s"])

    def check_last(self, ledger: Event, billed_s: int) -> None:
        """The last ledger of a session."""
        assert (self.code, ledger["pending_s"], ledger["billed_s"]) == (1000, 0, billed_s)
        items = list(self.items.values())
        assert all(item.is_over for item in items)
        accepted = [sent for id, sent in self.sent.items() if id not in self.answers and sent[2] <= self.received]
        assert sum(end - start for _, start, end in accepted) == self.received
        lost = [(self.heard_until(item)[1] // MS, item.end.start // MS, item.why) for item in items]
        pieces = [tuple(piece.values()) for piece in ledger["unheard"] if piece["start_ms"] < piece["end_ms"]]
        assert sorted(pieces) == sorted(piece for piece in lost if piece[0] < piece[1])
        spans = sorted(((item.start.start, item.end.stop) for item in items), key=max)  # two may begin in one ms
        assert all(end <= start + 2 * MS for (_, end), (start, _) in pairwise(spans))
        # Speech of less than two whole frames is none; a whole one can have begun before, and one be under way.
        rest = 0
        for is_speech, at, end_at in accepted:
            for position in range(at, end_at, 64):
                is_lost = is_speech and not any(start - MS <= position < end + MS for start, end in spans)
                is_cut = any(position <= bound < position + 64 for bound in self.boundaries)
                rest = rest + 64 if is_lost and not is_cut else 0
                assert rest < 4 * FRAME, f"speech at {position} is in no turn"


def _rounded(ms: int) -> range:
    """Positions that an event has as so many milliseconds."""
    return range(MS * ms, MS * (ms + 1))
