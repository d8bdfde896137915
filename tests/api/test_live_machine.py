"""A live session as a state machine: whatever happens to it, every sample and every second has its place.

The app with its gate, its replica and its books, all in virtual time. Its world: tests/api/live_world.py.
"""

import asyncio
import base64
import json
import math
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from audio.listener import FRAME, RATE, ListenerFailed
from contract.access import Scope
from contract.errors import AUDIO_UNREADABLE, BUSY, UPSTREAM_ERROR, UPSTREAM_TIMEOUT
from contract.telemetry import LIVE_SECONDS
from deployments.ingress.context import Service
from deployments.ingress.flows.realtime import notifier, session
from state import State
from state.blobs.open import open_blobs
from state.keys import open_secrets
from state.rates import Rates
from tests.api.conftest import Api, census, client_of
from tests.api.engines import local_engines
from tests.api.live import MODEL, Event, revoke, transcriber_of
from tests.api.live_world import MOST_S, SILENCE, SPEECH, Client, NumberedListener, NumberedTranscriber
from tests.catalogs import behaving, chat
from tests.state.books import histories
from tests.state.doubles import InlineDatabase, LoopClock
from tests.waiting import VirtualLoop, settled, until

CATALOG = behaving(obedient=chat("obedient"))
MINUTE_S = 4
"""Seconds that a session reserves at a time: a real minute is more than most histories have sound."""
SAMPLES = st.integers(1, 100 * FRAME) | st.sampled_from([2 * RATE, 3 * RATE, 9 * RATE])
TURN_DETECTIONS = [None, {"type": "server_vad", "silence_duration_ms": 200}, {"type": "server_vad"}]


class SessionMachine(RuleBasedStateMachine):
    """Random clients, keys, engines and servers."""

    @initialize(
        limit=st.sampled_from([None, None, MINUTE_S, 3 * MINUTE_S]),
        plan=st.sampled_from(["pro", "free"]),
        is_secret=st.booleans(),
        leaves=st.booleans(),
    )
    def start(self, limit: int | None, plan: str, is_secret: bool, leaves: bool) -> None:
        self.folder = TemporaryDirectory(prefix="live")
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.numbers = iter(range(10**9))
        self.client: Client | None = None
        self.leaves = leaves
        self.run(self._start(limit, plan, is_secret))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(3600):
                return await work

        return self.runner.run(bounded())

    async def _start(self, limit: int | None, plan: str, is_secret: bool) -> None:
        home, clock = Path(self.folder.name), cast(Any, LoopClock())
        self.database = InlineDatabase()
        state = State(cast(Any, self.database), open_secrets(home, is_shared=False), Rates(), open_blobs(home), clock)
        state.accounts._monotonic = clock
        service = Service(CATALOG, local_engines(CATALOG), state)
        self.api = Api(service, client_of(service))
        await self.api.organisation("small", plan)
        self.lines, self.heard = 0, self._seconds()
        await self._admit(limit)
        if is_secret:
            body = {"session": {"type": "transcription"}, "expires_after": {"anchor": "created_at", "seconds": 60}}
            reply = await self.api.send("POST", "/v1/realtime/client_secrets", self.key, json=body)
            self.opener, self.expires_s = reply.json()["value"], reply.json()["expires_at"]

    async def _admit(self, more_s: int | None) -> None:
        """A key that may have so many seconds more transcribed."""
        if more_s:
            spent = (await self._budget())["spent_micro_eur"] if self.lines else 0
            await self.api.limit(spent + self.price(more_s), org="small")
        self.key: str = await self.api.key(*Scope, org="small")
        self.opener = self.key
        self.caller = await self.api.caller(self.key)
        self.revoked_s, self.expires_s, self.is_spent = math.inf, math.inf, False

    async def _budget(self) -> Any:
        return (await self.api.state.accounts.describe(self.caller))["spend"]["organisation"]

    def price(self, seconds: int) -> int:
        return self.api.service.catalog.transcription[MODEL].cost_micro_eur(audio_seconds=seconds)

    def _seconds(self) -> Sequence[int]:
        totals = self.api.service.metrics.totals
        return [round(RATE * totals[LIVE_SECONDS, (kind,)]) for kind in ("heard", "unheard", "silence")]

    @property
    def now_s(self) -> float:
        return self.runner.get_loop().time()

    def has_session(self) -> bool:
        return self.client is not None

    @property
    def socket(self) -> Client:
        assert self.client
        return self.client

    @precondition(lambda self: not self.has_session())
    @rule(detection=st.sampled_from(TURN_DETECTIONS))
    def open(self, detection: Any) -> None:
        self.run(self._open(detection))

    async def _open(self, detection: Any) -> None:
        listener = NumberedListener()
        self.api.service.live.listener = cast(Any, listener)
        engine = transcriber_of(self.api).adapter = NumberedTranscriber(listener)
        client = self.client = Client(listener, engine)
        client.connect(self.api, self.opener)
        await until(lambda: client.status or client.serving.done())
        if client.status != 101:
            self.client, self.database.is_down = None, False
            await client.serving
            ended = self.now_s > self.revoked_s + 5 or self.now_s >= self.expires_s
            assert client.status in ((401,) if ended else (401, 402, 429, 503))
            if client.status in (401, 402):
                await self._admit(3 * MINUTE_S if client.status == 402 else None)
            return
        assert self.now_s <= self.expires_s + 1
        of_input = {"format": {"type": "audio/pcm", "rate": RATE}, "turn_detection": detection}
        await self._ask("session.update", session={"type": "transcription", "audio": {"input": of_input}})

    async def _ask(self, type: str, *, waits: bool = True, **members: Any) -> tuple[str, list[Event], Event]:
        """Sends an event: its id, the events that came meanwhile, and the error that answers it."""
        id = f"mine-{next(self.numbers)}"
        message = json.dumps({"type": type, "event_id": id, **members})
        events = await self.socket.ask(message, waits=waits)
        return id, events, self.socket.answers.get(id, {})

    def _is_answered(self, events: list[Event], error: Event, type: str) -> bool:
        """The event came, or an error; a session that ends may itself commit what it refuses to commit."""
        has_come = any(event["type"] == type for event in events)
        return self.socket.is_over or bool(error) != has_come or (has_come and self.socket.is_ending)

    @precondition(has_session)
    @rule(
        is_speech=st.booleans(),
        samples=SAMPLES,
        listener=st.sampled_from([*4 * [(0.0, None)], (0.2, None), (35.0, None), (0.0, ListenerFailed)]),
    )
    def append(self, is_speech: bool, samples: int, listener: tuple[float, type[Exception] | None]) -> None:
        """To a listener that dies, or takes long, for which nothing here waits."""
        self.run(self._append(is_speech, samples, *listener))

    @precondition(has_session)
    @rule(samples=SAMPLES, wait_s=st.sampled_from([0.0, 1.0, 4.0]))
    def take_a_turn(self, samples: int, wait_s: float) -> None:
        self.run(self._append(True, samples))
        self.wait(0.05)  # a draft begins
        if self.socket.detection:
            self.run(self._append(False, RATE))
        else:
            self.commit()
        self.wait(wait_s)

    async def _append(
        self, is_speech: bool, samples: int, delay_s: float = 0.0, failure: type[Exception] | None = None
    ) -> None:
        client = self.socket
        await client.ask('{"type": "parlance.session.ledger"}')  # what was not waited for has ended
        at = client.received
        if at + samples > MOST_S * RATE or client.serving.done():
            return
        client.listener.delay_s, client.listener.failure = delay_s, failure
        sound = (SPEECH if is_speech else SILENCE)[2 * at : 2 * (at + samples)]
        audio = base64.b64encode(sound).decode()
        id, _, error = await self._ask("input_audio_buffer.append", waits=not delay_s, audio=audio)
        client.sent[id] = is_speech, at, at + samples
        if failure:
            client.boundaries.add(at)
        if not delay_s and not client.is_over:
            assert client.received == at + (0 if error else samples)

    @precondition(has_session)
    @rule()
    def commit(self) -> None:
        _, events, error = self.run(self._ask("input_audio_buffer.commit"))
        assert self._is_answered(events, error, "input_audio_buffer.committed")
        if error and error["code"] == "input_audio_buffer_commit_empty":
            assert self.socket.detection or self.socket.received - self.socket.boundary < RATE // 10

    @precondition(has_session)
    @rule()
    def clear(self) -> None:
        assert self._is_answered(*self.run(self._ask("input_audio_buffer.clear"))[1:], "input_audio_buffer.cleared")

    @precondition(has_session)
    @rule(detection=st.sampled_from(TURN_DETECTIONS), language=st.sampled_from(["de", "en", "klingon"]))
    def update(self, detection: Any, language: str) -> None:
        of_input = {"turn_detection": detection, "transcription": {"model": MODEL, "language": language}}
        about = {"type": "transcription", "audio": {"input": of_input}}
        _, events, error = self.run(self._ask("session.update", session=about))
        assert self._is_answered(events, error, "session.updated")
        assert error or language != "klingon" or self.socket.is_over

    @precondition(has_session)
    @rule(
        answer=st.sampled_from([None, None, None, UPSTREAM_ERROR, AUDIO_UNREADABLE, BUSY, ZeroDivisionError]),
        is_silent=st.sampled_from([False, False, False, False, True]),
        delay_s=st.sampled_from([0.0, 0.3, 0.3, 1.5, 1.5, 8.0, 10_000.0]),
    )
    def change_engine(self, answer: Callable[..., Exception] | None, is_silent: bool, delay_s: float) -> None:
        engine = self.socket.engine
        engine.answer = (lambda: answer("a reason")) if answer else None
        engine.is_silent, engine.delay_s = is_silent, delay_s

    @precondition(lambda self: self.has_session() and not self.socket.is_over and not self.socket.is_ending)
    @rule(
        seconds=st.sampled_from([2, MINUTE_S + 1]),
        draft_s=st.sampled_from([0.0, 1000.0]),
        server=st.sampled_from([(True, True), (True, True), (True, False), (False, True), (False, False)]),
        answer=st.sampled_from([AUDIO_UNREADABLE, UPSTREAM_ERROR, UPSTREAM_TIMEOUT]),
        end=st.sampled_from(["commit", "clear", "silence", "end", "leave", "crash"]),
    )
    def end_a_draft(
        self, seconds: int, draft_s: float, server: tuple[bool, bool], answer: Callable[..., Exception], end: str
    ) -> None:
        """A slow draft is given up, and what it had begun stays owed; then the engine fails, or the database."""
        has_replica, has_database = server
        self.change_server(has_replica, True)
        self.change_engine(None, False, draft_s)
        self.run(self._append(True, seconds * RATE))
        self.wait(0.05)
        self.run(self._append(True, 2 * FRAME))
        self.change_server(has_replica, has_database)
        self.change_engine(answer, False, 0.0)
        match end:
            case "commit":
                self.commit()
                self.run(self._append(False, RATE))
                self.wait(10.0)  # it is asked again
            case "clear":
                self.clear()
            case "silence":
                self.run(self._append(False, RATE))
            case "end":
                self.run(self._stop("end"))
            case "leave":
                self.run(self._leave())
            case "crash":
                self.socket.may_crash = True
                self.run(self._append(True, FRAME, failure=ZeroDivisionError))

    @precondition(has_session)
    @rule(has_replica=st.sampled_from([True, True, False]), has_database=st.sampled_from([True, True, False]))
    def change_server(self, has_replica: bool, has_database: bool) -> None:
        handle = transcriber_of(self.api).handle
        (handle.may_start.set if has_replica else handle.sleep)()
        self.database.is_down = not has_database

    @precondition(has_session)
    @rule(seconds=st.sampled_from([0.05, 0.3, 1.0, 4.0, 20.0, 70.0, 290.0]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @precondition(lambda self: self.has_session() and len(self.socket.events) > 12)
    @rule(what=st.sampled_from(["end", "leave", "read no more", "drain", "revoke", "spend", "an hour passes"]))
    def stop(self, what: str) -> None:
        self.run(self._stop(what))

    async def _stop(self, what: str) -> None:
        match what:
            case "end":
                await self._ask("parlance.session.end")
                self.socket.is_ending = True
            case "leave":
                self.socket.inbox.put_nowait({"type": "websocket.disconnect", "code": 1006})
            case "read no more":
                self.socket.reads.clear()
            case "drain":
                self.api.service.live.drain()
                await settled()
            case "revoke" if not self.database.is_down:
                await revoke(self.api, self.key)
                self.revoked_s = min(self.revoked_s, self.now_s)
            case "spend" if not self.database.is_down:
                await self.api.limit(0, org="small")
                self.is_spent = True  # below what it holds already
            case "an hour passes":
                await asyncio.sleep(3590)

    async def _leave(self) -> None:
        await self._stop("leave")
        await self.socket.serving

    # --- what holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def books_are_right(self) -> None:
        if getattr(self, "client", None):
            self.run(self._look())

    async def _look(self) -> None:
        client = self.socket
        if self.database.is_down:
            self.revoked_s = max(self.revoked_s, self.now_s) if self.revoked_s < math.inf else math.inf
        assert client.is_over or not (client.is_refused or self.now_s > self.revoked_s + 10)
        if not client.serving.done():
            return
        assert client.serving.exception() is None
        self.client = None
        await self._account(client)

    async def _account(self, client: Client) -> None:
        """The books of a session that is over."""
        if client.failure:
            raise client.failure
        assert client.code != 1011 or client.may_crash
        self.database.is_down = False
        await asyncio.sleep(70)  # what the database has missed is written
        before, self.heard = self.heard, self._seconds()
        heard, unheard, silence = (after - earlier for after, earlier in zip(self.heard, before, strict=True))
        assert heard + unheard + silence == client.received, (heard, unheard, silence, client.received)
        lines = (await self.api.usage())[self.lines :]
        self.lines, billed_s = self.lines + len(lines), sum(line.quantity for line in lines)
        assert len(lines) == bool(billed_s)
        if client.reads.is_set():
            open = [] if client.ledger else filter(None, [client.undetected()])
            items = [*client.items.values(), *open]
            client.check_account(items, heard, unheard, billed_s)
        if client.ledger and client.reads.is_set():
            client.check_last(client.ledger, billed_s)
        if not self.is_spent:
            assert sum(line.cost_micro_eur for line in lines) == self.price(billed_s), "more than was reserved"
            left = (await self._budget())["left_micro_eur"]
            assert left is None or left >= 0
        if client.is_refused and self.revoked_s == math.inf:
            await self._admit(3 * MINUTE_S)

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        try:
            self.run(self._finish())
        finally:
            self.runner.close()
            self.folder.cleanup()

    async def _finish(self) -> None:
        """The client leaves, or everything is well again and the session ends; nothing is left of it."""
        self.database.is_down = False
        client = self.client
        if client and self.leaves:
            await self._leave()
        elif client:
            client.reads.set()
            client.engine.answer, client.engine.delay_s = None, 0.0
            transcriber_of(self.api).handle.may_start.set()
            await client.ask('{"type": "parlance.session.end"}', waits=False)
            await client.serving
        if client:
            await self._account(client)
        live, state = self.api.service.live, self.api.state
        assert (census(self.api.service), state.rates.open_streams) == ({}, 0)
        assert getattr(live.listener, "open", 0) == 0
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert not names & {"transcriber", "draft", "end of session", "key of session", "notice"}
        await state.close()


def test_whatever_happens_to_a_session_its_books_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (notifier, session):
        monkeypatch.setattr(module, "MINUTE_S", MINUTE_S)
    # What a state does beside its requests would take longer than all else in an hour.
    monkeypatch.setattr("state.open.MARK_S", 20.0)
    monkeypatch.setattr("state.open.SWEEP_S", 1e6)
    run_state_machine_as_test(SessionMachine, settings=histories(60, steps=30))
