"""What each event of a client does to its session, and what the client is told of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from audio.listener import ListenerFailed, SoundStream
from contract.errors import BUFFER_EMPTY, INVALID_REQUEST, UPSTREAM_ERROR, ApiError
from contract.ids import random_id
from contract.realtime import events, replies
from contract.realtime.limits import REALTIME_SESSION_S
from contract.realtime.session import AudioInput
from contract.transcription.request import TranscriptionPlan, plan
from deployments.ingress.context import RequestContext
from deployments.ingress.flows.realtime.ear import Ear
from deployments.ingress.flows.realtime.sound import Pace, SessionSound
from deployments.ingress.flows.realtime.teller import MINUTE_S, Teller
from deployments.ingress.flows.realtime.turns import TurnChange, TurnDetector
from deployments.ingress.flows.realtime.wire import NORMAL, Wire

SHORTEST_S = 0.1
"""Of a turn that a client commits."""


class LiveSession:
    """One client, from `session.created` to the last ledger.

    Args:
        context: whose session it is.
        config: what it is set to at first.
        wire: the way to its client.
    """

    def __init__(self, context: RequestContext, config: AudioInput, wire: Wire) -> None:
        self.id = f"sess_{random_id()}"
        self.teller = Teller(context, wire)
        self._context, self._config, self._wire = context, config, wire
        self._expires_at = int(time.time()) + REALTIME_SESSION_S
        self._sound, self._pace, self._turns = SessionSound(), Pace(), TurnDetector(config.turn_detection)
        self._ear = Ear(context, _plan(context, config), self._sound, self.teller)
        self._stream: SoundStream | None = None
        self._resources = AsyncExitStack()
        self._turn_of = asyncio.Lock()
        self._end: asyncio.Task[None] | None = None

    async def __aenter__(self) -> LiveSession:
        self._ear.wake()
        await self._wire.tell(replies.session_created(self._object()))
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._end:
            self._end.cancel()
        try:
            await self._ear.close()
            await self.teller.end()
        finally:
            self._hold_sound(self._sound.end)
            if self._stream:
                await self._stream.end()
            await self._resources.__aexit__(*error)

    async def take(self, text: str) -> None:
        """One message of the client. Errors are told, and the session goes on."""
        event_id = None
        try:
            async with self._context.service.concurrency.reading_turn(self._context.caller, len(text)):
                content = events.read_json(text)
            event_id = events.event_id_of(content)
            event = events.read_event(content)
            async with self._turn_of:
                await self._do(event)
        except ApiError as error:
            await self.teller.refuse(error, event_id)

    def end(self, reason: str = "") -> None:
        """Begins to end the session: all turns are written down, then the last ledger comes, then the close."""
        if self._end is None:
            self._end = asyncio.create_task(self._finish(reason), name="end of session")

    async def _finish(self, reason: str) -> None:
        async with self._turn_of:
            if self._stream:
                stream, self._stream = self._stream, None
                await self._listen(*await stream.end())
            if turn := self._turns.turn:
                await self._changed(self._turns.commit(turn, self._sound.end))
        await self._ear.finish()
        await self._wire.tell(replies.session_ledger(self.teller.ledger.object(), is_last=True))
        await self._wire.close(NORMAL, reason)

    async def _do(self, event: events.ClientEvent) -> None:
        if self._end and not isinstance(event, events.LedgerRequest):
            raise INVALID_REQUEST("the session is ending and takes no more events; open another one")
        match event:
            case events.Append():
                await self._append(event)
            case events.Commit():
                await self._commit()
            case events.Clear():
                await self._clear()
            case events.SessionUpdate():
                await self._update(event)
            case events.LedgerRequest():
                await self._wire.tell(replies.session_ledger(self.teller.ledger.object(), is_last=False))
            case events.SessionEnd():
                self.end()

    async def _update(self, event: events.SessionUpdate) -> None:
        config = self._config.updated(event.session)
        wanted, before = _plan(self._context, config), self._ear.plan
        if self._stream and (config.format != self._config.format or wanted.model is not before.model):
            raise INVALID_REQUEST(
                "the format and the model cannot change once sound has come; open another session", param="session"
            )
        if config.turn_detection != self._config.turn_detection:
            if self._turns.turn:
                raise INVALID_REQUEST(
                    "`turn_detection` cannot change within a turn; commit or clear the buffer first",
                    param="session.audio.input.turn_detection",
                )
            self._turns.switch(config.turn_detection, self._sound.end)
        self._config, self._ear.plan = config, wanted
        if wanted.model is not before.model:
            self._ear.wake()
        await self._wire.tell(replies.session_updated(self._object()))

    async def _append(self, event: events.Append) -> None:
        self._forget()
        format = self._config.format
        sound = event.sound(format)
        self._context.service.live.require_room(self._context.caller.org_id)
        self._pace.take(
            len(sound) / format.sample_bytes / format.sample_rate,
            self._sound.seconds,
            asyncio.get_running_loop().time(),
        )
        if self.teller.account is None:
            await self._begin()
        assert self._stream
        try:
            frames = await self._stream.listen(sound)
        except ListenerFailed:
            raise UPSTREAM_ERROR() from None
        await self._listen(*frames)

    async def _begin(self) -> None:
        """The first sound: from now on the session costs something."""
        model, unit = self._ear.plan.model, "audio_seconds"
        bill = await self._context.bill(model, {unit: MINUTE_S}, unit, is_stream=True)
        self.teller.account = await self._resources.enter_async_context(bill)
        self._stream = self._context.service.live.listener.stream(self._config.format.object())

    async def _listen(self, samples: bytes, probabilities: Sequence[float]) -> None:
        self._sound.add(samples)
        self._context.service.live.sound_bytes.take(self._context.caller.org_id, len(samples))
        self.teller.ledger.receive(len(samples) // 2)
        for change in self._turns.listen(probabilities, self._sound.end):
            await self._changed(change)
        self._ear.follow(self._turns.turn if self._turns.vad else None)
        self._forget()

    async def _changed(self, change: TurnChange) -> None:
        turn, is_detected = change.turn, self._turns.vad is not None
        if change.kind == "started":
            await self.teller.started(turn, is_detected=is_detected)
            return
        if await self.teller.stopped(turn, is_detected=is_detected):
            self._ear.hear(turn)
        else:
            self._ear.drop()

    async def _commit(self) -> None:
        turn = self._turns.turn
        if turn is None:
            raise BUFFER_EMPTY("there is no speech in the buffer; append some before you commit it")
        if turn.seconds < SHORTEST_S:
            raise BUFFER_EMPTY(f"the buffer holds {turn.seconds:.3f} s of sound; a turn has at least {SHORTEST_S} s")
        await self._changed(self._turns.commit(turn, self._sound.end))

    async def _clear(self) -> None:
        if turn := self._turns.clear(self._sound.end):
            self._ear.drop()
        self._forget()
        await self.teller.cleared(turn)

    def _forget(self) -> None:
        needed_from = self._ear.needed_from
        self._hold_sound(self._turns.needed_from if needed_from is None else min(needed_from, self._turns.needed_from))

    def _hold_sound(self, since: int) -> None:
        """Keeps what came since that position."""
        before = self._sound.start
        self._sound.forget_before(since)
        forgotten_bytes = 2 * (self._sound.start - before)
        self._context.service.live.sound_bytes.give_back(self._context.caller.org_id, forgotten_bytes)

    def _object(self) -> replies.Event:
        return replies.session_object(self.id, _named(self._config, self._ear.plan), self._expires_at)


def opening_object(context: RequestContext, config: AudioInput) -> replies.Event:
    """What a session would show that began with `config` now. Raises as `LiveSession`."""
    shown = _named(config, _plan(context, config))
    return replies.session_object(f"sess_{random_id()}", shown, int(time.time()) + REALTIME_SESSION_S)


def _named(config: AudioInput, plan: TranscriptionPlan) -> AudioInput:
    """The same with the model that listens, which an update need not name."""
    transcriber = config.transcription.model_copy(update={"model": plan.model.id})
    return config.model_copy(update={"transcription": transcriber})


def _plan(context: RequestContext, config: AudioInput) -> TranscriptionPlan:
    """Raises MODEL_NOT_FOUND, LANGUAGE_NOT_SUPPORTED, before anything is woken."""
    models, request = context.service.catalog.transcription, config.transcription.request()
    default = next((model.id for model in models.values() if model.is_default), None)
    return plan(request, context.pick(models, request.model, default))
