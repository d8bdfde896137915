"""Accounting of a live session as a property: whatever its client and its engine do, every sample is in one column."""

from __future__ import annotations

import asyncio
import base64
import json
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import configs
from audio.listener import FRAME, RATE
from autoscaling.metrics import Metrics
from contract.access import TARIFFS, Caller, Scope
from contract.errors import AUDIO_UNREADABLE, UPSTREAM_ERROR
from contract.realtime.session import DEFAULT
from contract.transcription.engine import Segment, TranscriptUpdate
from deployments.ingress.flows.realtime import transcriber
from deployments.ingress.flows.realtime.session import LiveSession
from deployments.ingress.flows.realtime.turns import LiveTurn
from deployments.ingress.front.concurrency import ConcurrencyLimits
from deployments.ingress.front.live import LiveSessions
from state.rates import RateVerdict
from tests.api.live import MODEL, TRANSCRIPTION, Event, ScriptedListener

CATALOG = configs.load("embedded")
CALLER = Caller(1, "acme", "key", TARIFFS["pro"], frozenset(Scope))


class ObedientEngine:
    """Begins calls, answers them and fails as a test says.

    Attributes:
        may_begin: there is a replica; calls wait where there is none.
        under_way: calls that have begun and have no answer yet.
        owed: spans in samples, of calls that have begun and did not fail.
    """

    def __init__(self) -> None:
        self.may_begin, self.answers = asyncio.Event(), asyncio.Queue[str | Exception]()
        self.may_begin.set()
        self.under_way, self.owed = 0, list[tuple[int, int]]()

    def free(self) -> int:
        return 1

    def view(self) -> Any:
        return SimpleNamespace(waiting=0)

    def warm(self) -> None:
        pass

    async def ready(self, within_s: float, *, timings: Any) -> None:
        await self.may_begin.wait()

    async def stream(self, method: Any, job: Any, *, context: Any) -> AsyncGenerator[TranscriptUpdate, None]:
        start, end = map(int, job.audio.split(b":"))
        context.timings.has_begun = True
        self.owed.append((start, end))
        self.under_way += 1
        try:
            answer = await self.answers.get()
        finally:
            self.under_way -= 1
        if isinstance(answer, Exception):
            self.owed.remove((start, end))
            raise answer
        yield TranscriptUpdate(1.0, 1.0, "en", (Segment(answer, 0.0, 1.0),))


class Bill:
    """Remembers what was settled."""

    def __init__(self) -> None:
        self.settled_s = 0

    async def expect(self, **most: int) -> None:
        pass

    async def progress(self, **used: int) -> None:
        assert used["audio_seconds"] >= self.settled_s
        self.settled_s = used["audio_seconds"]

    async def settle(self, **used: int) -> None:
        await self.progress(**used)

    async def __aenter__(self) -> Bill:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass


class Wire:
    """Collects events, until it is closed."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.is_closed = False

    async def send(self, type: str, **members: Any) -> None:
        assert not self.is_closed
        self.events.append({"type": type, **members})

    async def close(self, code: int, reason: str) -> None:
        self.is_closed = True


class Stage:
    """One session over an engine that obeys, without a socket.

    Attributes:
        turns: all that were opened, in order.
    """

    def __init__(self, is_detected: bool) -> None:
        self.engine, self.bill, self.wire = ObedientEngine(), Bill(), Wire()
        self.turns: list[LiveTurn] = []
        state = SimpleNamespace(
            rates=SimpleNamespace(hit=returning(RateVerdict(20, 19, 1, True))),
            accounts=SimpleNamespace(current=returning(CALLER)),
            clock=lambda: 2e9,
        )
        live = LiveSessions()
        live.listener = cast(Any, ScriptedListener())
        service = SimpleNamespace(
            catalog=CATALOG, live=live, state=state, concurrency=ConcurrencyLimits(), metrics=Metrics()
        )
        model = CATALOG.transcription[MODEL]
        context: Any = SimpleNamespace(
            service=service,
            caller=CALLER,
            owner="org-1",
            trace=SimpleNamespace(model=model, fault=None, names=None),
            engine=lambda model: self.engine,
            offered=lambda models: list(models.values()),
            bill=returning(self.bill),
        )
        settings = {"format": {"type": "audio/pcm", "rate": RATE}} | ({} if is_detected else {"turn_detection": None})
        config = DEFAULT.updated({"type": "transcription", "audio": {"input": settings}})
        self.session = LiveSession(context, config, self.wire)
        self.session._pace = cast(Any, SimpleNamespace(take=lambda *of: None))
        self.session._sound.wav = lambda start, end: f"{start}:{end}".encode()  # type: ignore[method-assign]
        self.ledger = self.session.notifier.ledger
        open_turn = self.ledger.open
        self.ledger.open = lambda turn: (self.turns.append(turn), open_turn(turn))[1]  # type: ignore[method-assign]

    async def send(self, type: str, **members: Any) -> None:
        await self.session.take(json.dumps({"type": type, **members}))

    async def do(self, what: str, samples: int) -> None:
        """One step of a client or of the engine."""
        match what:
            case "speak" | "pause":
                sound = (b"\1\0" if what == "speak" else b"\0\0") * samples
                await self.send("input_audio_buffer.append", audio=base64.b64encode(sound).decode())
            case "commit" | "clear":
                await self.send(f"input_audio_buffer.{what}")
            case "begin":
                self.engine.may_begin.set()
            case "stall":
                self.engine.may_begin.clear()
            case _ if self.engine.under_way:
                self.engine.answers.put_nowait(ANSWERS[what]())
        for _ in range(12):
            await asyncio.sleep(0)

    async def finish(self) -> None:
        """Ends the session as its client asks, with an engine that is well."""
        await self.send("parlance.session.end")
        self.engine.may_begin.set()
        while not self.wire.is_closed:
            if self.engine.under_way:
                self.engine.answers.put_nowait("hello there")
            await asyncio.sleep(0)


def returning(value: Any) -> Any:
    async def function(*of: Any, **more: Any) -> Any:
        return value

    return function


ANSWERS: dict[str, Callable[[], str | Exception]] = {
    "answer": lambda: "one two three",
    "answer nothing": lambda: "",
    "fail": UPSTREAM_ERROR,
    "refuse": lambda: AUDIO_UNREADABLE("no"),
    "break": ZeroDivisionError,
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["speak", "speak", "pause"]), st.integers(1, 60 * FRAME)),
        st.tuples(st.sampled_from(["commit", "clear", "begin", "stall", *ANSWERS]), st.just(0)),
    ),
    max_size=30,
)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcriber, "RETRY_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(transcriber, "DRAFT_EVERY_S", 0.1)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.booleans(), st.sampled_from(["end", "leave", "crash"]))
def test_every_sample_is_in_one_column_and_what_has_begun_is_owed(
    steps: Sequence[tuple[str, int]], is_detected: bool, end: str
) -> None:
    asyncio.run(_account(steps, is_detected, end))


async def _account(steps: Sequence[tuple[str, int]], is_detected: bool, end: str) -> None:
    stage = Stage(is_detected)
    try:
        async with stage.session:
            for what, samples in steps:
                await stage.do(what, samples)
            if end == "end":
                await stage.finish()
            if end == "crash":
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert end == "crash"
    events, ledger = list(stage.wire.events), stage.ledger
    if end == "end":
        assert (events[-1]["type"], events[-1]["is_last"]) == ("parlance.session.ledger", True)
        assert events[-1]["ledger"] == ledger.object()

    assert ledger.received == sum(samples for what, samples in steps if what in ("speak", "pause"))
    spans = sorted((turn.start, turn.end) for turn in stage.turns)
    assert all(end <= start for (_, end), (start, _) in pairwise([(0, 0), *spans]))
    assert ledger.pending == 0
    assert ledger.transcribed + ledger.untranscribed == ledger.speech == sum(end - start for start, end in spans)
    assert ledger.silence == ledger.received - ledger.speech >= 0
    unheard = [(piece.start, piece.end) for piece in ledger.pieces]
    assert ledger.untranscribed == sum(end - start for start, end in unheard)

    owed_s = sum(math.ceil((_owed_until(stage, turn, end) - turn.start) / RATE) for turn in stage.turns)
    assert stage.bill.settled_s == ledger.billed_s == owed_s
    await asyncio.sleep(0)
    assert stage.wire.events == events


def _owed_until(stage: Stage, turn: LiveTurn, end: str) -> int:
    """End of the sound of a turn that its client owes, as the calls and the events say."""
    last = {event["type"]: event for event in stage.wire.events if event.get("item_id") == turn.item_id}
    if f"{TRANSCRIPTION}.completed" in last:
        return turn.end
    failed = last.get(f"{TRANSCRIPTION}.failed")
    is_reported = f"{TRANSCRIPTION}.delta" in last
    is_ours = failed["error"]["code"] != "audio_unreadable" if failed else end == "crash" and not _cleared(stage, turn)
    begun = [min(until, turn.end) for start, until in stage.engine.owed if start == turn.start]
    if not is_ours:
        return max(begun, default=turn.start)
    assert is_reported == (turn.reported_until > turn.start)
    assert turn.reported_until in (0, *(until for _, until in stage.engine.owed))
    return min(max(turn.start, turn.reported_until), turn.end)


def _cleared(stage: Stage, turn: LiveTurn) -> bool:
    return any(piece.why == "cleared" and piece.end == turn.end for piece in stage.ledger.pieces)
