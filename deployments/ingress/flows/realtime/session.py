"""Carries out the events of a client, in their order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import copy_context
from typing import Any

from audio.listener import ListenerFailed, SoundStream
from concurrency.allowance import Allowance
from contract.errors import BUFFER_EMPTY, INVALID_REQUEST, UPSTREAM_ERROR, ApiError
from contract.ids import random_id
from contract.limits import KEY_CACHE_S, RATE_WINDOW_S
from contract.realtime import events
from contract.realtime.limits import (
    REALTIME_EVENT_BYTES,
    REALTIME_EVENTS_AT_ONCE,
    REALTIME_EVENTS_PER_S,
    REALTIME_SESSION_S,
)
from contract.realtime.session import AudioInput
from contract.transcription.request import TranscriptionPlan
from deployments.ingress.context import RequestContext
from deployments.ingress.flows.realtime.notifier import MINUTE_S, NORMAL, SessionNotifier, Wire
from deployments.ingress.flows.realtime.transcriber import TurnTranscriber
from deployments.ingress.flows.realtime.turns import Pace, SessionSound, TurnChange, TurnDetector
from deployments.ingress.flows.transcription import prepare

SHORTEST_S = 0.1
"""Of a turn that a client commits."""
NO_SOUND_WEIGHT = 5
"""Events that one counts for which brings no sound, or is refused: each causes an event in reply."""


class LiveSession:
    """One client, from `session.created` to the last ledger.

    Args:
        context: the request that opened it.
        config: its first settings.
        wire: the way to its client.
    """

    def __init__(self, context: RequestContext, config: AudioInput, wire: Wire) -> None:
        self.id = f"sess_{random_id()}"
        self.notifier = SessionNotifier(context, wire)
        self._context, self._config, self._wire = context, config, wire
        self._expires_at = int(context.service.state.clock()) + REALTIME_SESSION_S
        self._sound, self._pace, self._turns = SessionSound(), Pace(), TurnDetector(config.turn_detection)
        self._transcriber = TurnTranscriber(context, _plan(context, config), self._sound, self.notifier)
        self._stream: SoundStream | None = None
        self._own = copy_context()
        self._resources = AsyncExitStack()
        self._turn_of, self._allowance = asyncio.Lock(), Allowance(REALTIME_EVENTS_PER_S, REALTIME_EVENTS_AT_ONCE)
        self._end: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> LiveSession:
        await self._wire.send("session.created", session=self._object())
        self._watch = asyncio.create_task(self._watch_key(), name="key of session")
        return self

    async def __aexit__(self, *error: Any) -> None:
        for task in (self._watch, self._end):
            if task:
                task.cancel()
        async with AsyncExitStack() as ends:  # each of them, whichever is cancelled
            ends.push_async_callback(self._resources.__aexit__, *error)
            if self._stream:
                ends.push_async_callback(self._stream.end)
            ends.callback(self._hold_sound, self._sound.end)
            await self._transcriber.close()
            await self.notifier.end(owes_begun=not isinstance(error[1], Exception))

    @property
    def idle_s(self) -> float:
        """Seconds since a turn was transcribed last, or since the beginning."""
        return time.monotonic() - self.notifier.transcribed_at_s

    async def take(self, message: str | bytes) -> None:
        """Carries out one message of the client, and returns when it may send the next."""
        length, carried_out = len(message), self._carry_out(message)
        del message  # not kept while its client waits
        weight = await carried_out * self._context.service.live.crowd(self._context.caller.org_id)
        await asyncio.sleep(self._allowance.use(weight * (1 + length / REALTIME_EVENT_BYTES)))

    async def _carry_out(self, message: str | bytes) -> int:
        """Returns how many events the message counts. Errors are reported, and do not end the session."""
        event_id, length = None, len(message)
        try:
            if isinstance(message, bytes):
                raise INVALID_REQUEST("a binary frame came; send events as text, and sound as base64 in `audio`")
            async with self._reading_turn(length):
                content = events.read_json(message)
            event_id = events.event_id_of(content)
            event = events.read_event(content)
            del message, content  # its event may wait, and has all of them
            async with self._turn_of:
                await self._do(event)
            return 1 if isinstance(event, events.Append) else NO_SOUND_WEIGHT
        except ApiError as error:
            await self.notifier.refuse(error, event_id)
            return NO_SOUND_WEIGHT

    def _reading_turn(self, length: int) -> AbstractAsyncContextManager[None]:
        return self._context.service.concurrency.reading_turn(self._context.caller, length)

    async def _watch_key(self) -> None:
        """Ends the session once its key has ended, also in silence."""
        try:
            while True:
                await asyncio.sleep(KEY_CACHE_S)
                await self._context.service.state.accounts.current(self._context.caller)
        except ApiError as error:
            await self.notifier.refuse(error)

    def end(self, reason: str = "") -> None:
        """Begins to end the session: all turns are transcribed, then the last ledger comes, then the close."""
        if self._end is None:
            # Where another client takes its place, this runs in the context of that one: Serve would cancel the calls
            # of this session when that one leaves.
            self._end = self._own.run(asyncio.create_task, self._finish(reason), name="end of session")

    async def _finish(self, reason: str) -> None:
        self.notifier.rate_until_s = time.monotonic() + RATE_WINDOW_S
        async with self._turn_of:
            if self._stream:
                stream, self._stream = self._stream, None
                await self._listen(*await stream.end())
            if turn := self._turns.turn:
                await self._changed(self._turns.commit(turn, self._sound.end))
        await self._transcriber.finish()
        await self._send_ledger(is_last=True)
        await self._wire.close(NORMAL, reason)

    async def _send_ledger(self, *, is_last: bool) -> None:
        """Sends the seconds so far; the last ledger comes right before the close."""
        await self._wire.send("parlance.session.ledger", ledger=self.notifier.ledger.object(), is_last=is_last)

    async def _do(self, event: events.AnyEvent) -> None:
        if self._end and event.type != "parlance.session.ledger":
            raise INVALID_REQUEST("the session is ending and takes no more events; open another one")
        match event:
            case events.Append():
                await self._append(event)
            case events.SessionUpdate():
                await self._update(event)
            case events.Signal(type="input_audio_buffer.commit"):
                await self._commit()
            case events.Signal(type="input_audio_buffer.clear"):
                await self._clear()
            case events.Signal(type="parlance.session.ledger"):
                await self._send_ledger(is_last=False)
            case events.Signal(type="parlance.session.end"):
                self.end()

    async def _update(self, event: events.SessionUpdate) -> None:
        config = self._config.updated(event.session)
        wanted, before = _plan(self._context, config), self._transcriber.plan
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
        self._config, self._transcriber.plan = config, wanted
        await self._wire.send("session.updated", session=self._object())

    async def _append(self, event: events.Append) -> None:
        self._forget()
        format = self._config.format
        self._context.service.live.require_place(self._context.caller.org_id)
        seconds = event.seconds(format)
        self._pace.take(seconds, self._sound.seconds, asyncio.get_running_loop().time())
        async with self._reading_turn(len(event.audio)):
            sound = event.sound(format)
        if self.notifier.bill is None:
            await self._begin()
        assert self._stream
        try:
            frames = await self._stream.listen(sound)
        except ListenerFailed:
            raise UPSTREAM_ERROR() from None
        await self._listen(*frames)

    async def _begin(self) -> None:
        """Opens the bill and wakes the engine with the first sound."""
        model, unit = self._transcriber.plan.model, "audio_seconds"
        bill = await self._context.bill(model, {unit: MINUTE_S}, unit, is_stream=True)
        self.notifier.bill = await self._resources.enter_async_context(bill)
        self._stream = self._context.service.live.listener.stream(self._config.format.object(), self._context.owner)
        self._context.engine(model).warm()

    async def _listen(self, samples: bytes, probabilities: Sequence[float]) -> None:
        self._sound.add(samples)
        self._context.service.live.sound_bytes.take(self._context.caller.org_id, len(samples))
        self.notifier.ledger.received += len(samples) // 2
        for change in self._turns.listen(probabilities, self._sound.end):
            await self._changed(change)
        self._transcriber.follow(self._turns.turn if self._turns.vad else None)
        self._forget()

    async def _changed(self, change: TurnChange) -> None:
        turn, is_detected = change.turn, self._turns.vad is not None
        if change.kind == "started":
            await self.notifier.started(turn, is_detected=is_detected)
        elif await self.notifier.stopped(turn, is_detected=is_detected):
            self._transcriber.enqueue(turn)
        else:
            self._transcriber.discard_draft()

    async def _commit(self) -> None:
        turn = self._turns.turn
        if turn is None:
            raise BUFFER_EMPTY("there is no speech in the buffer; append some before you commit it")
        if turn.seconds < SHORTEST_S:
            raise BUFFER_EMPTY(f"the buffer holds {turn.seconds:.3f} s of sound; a turn has at least {SHORTEST_S} s")
        await self.notifier.count(turn)
        await self._changed(self._turns.commit(turn, self._sound.end))

    async def _clear(self) -> None:
        if turn := self._turns.clear(self._sound.end):
            self._transcriber.discard_draft()
        self._forget()
        await self.notifier.cleared(turn)

    def _forget(self) -> None:
        needed_from = self._transcriber.needed_from
        self._hold_sound(self._turns.needed_from if needed_from is None else min(needed_from, self._turns.needed_from))

    def _hold_sound(self, since: int) -> None:
        """Drops all sound before that position, also from the account of its organisation."""
        before = self._sound.start
        self._sound.forget_before(since)
        forgotten_bytes = 2 * (self._sound.start - before)
        self._context.service.live.sound_bytes.give_back(self._context.caller.org_id, forgotten_bytes)

    def _object(self) -> events.Event:
        return events.session_object(self.id, _named(self._config, self._transcriber.plan), self._expires_at)


def opening_object(context: RequestContext, config: AudioInput) -> events.Event:
    """The object of a session that begins with `config` now. Raises as `LiveSession`."""
    ends_at = int(context.service.state.clock()) + REALTIME_SESSION_S
    return events.session_object(f"sess_{random_id()}", _named(config, _plan(context, config)), ends_at)


def _named(config: AudioInput, plan: TranscriptionPlan) -> AudioInput:
    """The same with the id of the model that was chosen."""
    transcriber = config.transcription.model_copy(update={"model": plan.model.id})
    return config.model_copy(update={"transcription": transcriber})


def _plan(context: RequestContext, config: AudioInput) -> TranscriptionPlan:
    """Raises NOT_CONFIGURED, LANGUAGE_NOT_SUPPORTED."""
    try:
        return prepare(context, config.transcription.request())
    except ApiError as error:
        fields, path = type(config.transcription).model_fields, "session.audio.input.transcription"
        raise error.renamed(lambda name: f"{path}.{name}" if name in fields else name) from error
