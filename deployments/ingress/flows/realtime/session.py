"""What each event of a client does to its session, and what the client is told of it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

from audio.listener import RATE, ListenerFailed, Stream
from contract.errors import (
    BUFFER_EMPTY,
    BUFFER_FULL,
    INVALID_REQUEST,
    STATE_UNAVAILABLE,
    UPSTREAM_ERROR,
    ApiError,
)
from contract.ids import random_id
from contract.realtime import replies
from contract.realtime.events import (
    Append,
    Clear,
    ClientEvent,
    Commit,
    LedgerRequest,
    SessionEnd,
    SessionUpdate,
    event_id_of,
    read_event,
    read_json,
)
from contract.realtime.limits import REALTIME_BUFFER_S, REALTIME_SESSION_S
from contract.realtime.session import DEFAULT, AudioInput
from contract.transcription.request import TranscriptionPlan, plan
from deployments.ingress.context import RequestContext
from deployments.ingress.flows.realtime.ear import Ear
from deployments.ingress.flows.realtime.ledger import Ledger
from deployments.ingress.flows.realtime.sound import Sound
from deployments.ingress.flows.realtime.turns import MS, Change, Turn, TurnDetector
from state.billing.reservation import Account

MINUTE_S = 60
"""What is reserved at a time."""

Tell = Callable[[replies.Event], Awaitable[None]]


class SessionOver(Exception):
    """The session ends now. `error` is why, where that is nothing that the client wants."""

    def __init__(self, error: ApiError | None = None) -> None:
        super().__init__()
        self.error = error


class Session:
    """One client, from `session.created` to the last ledger.

    Args:
        context: whose session it is.
        config: what it is set to at first.
        tell: sends one event.
    """

    def __init__(self, context: RequestContext, config: AudioInput, tell: Tell) -> None:
        self.id = f"sess_{random_id()}"
        self.ledger = Ledger()
        self._context, self._config, self._tell = context, config, tell
        self._expires_at = int(time.time()) + REALTIME_SESSION_S
        self._sound, self._turns = Sound(), TurnDetector(config.turn_detection)
        self._ear = Ear(context, _plan(context, config), self._sound, self)
        self._stream: Stream | None = None
        self._account: Account | None = None
        self._resources = AsyncExitStack()
        self._last_item: str | None = None
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Session:
        self._ear.wake()
        await self._tell(replies.session_created(self._object()))
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._ear.close()
        self.ledger.end()
        if self._stream:
            await self._stream.end()
        await self._resources.__aexit__(*error)

    async def take(self, text: str) -> None:
        """One message of the client. Raises SessionOver; every other error is told, and the session goes on."""
        event_id = None
        try:
            content = read_json(text)
            event_id = event_id_of(content)
            await self._do(read_event(content))
        except ApiError as error:
            await self.refuse(error, event_id)

    async def refuse(self, error: ApiError, event_id: str | None = None) -> None:
        """Tells an error, which ends the session where it is of money or the key. Raises SessionOver then."""
        await self._tell(replies.error_event(error, event_id))
        if error.fault.status in (401, 402):
            raise SessionOver(error)

    async def _do(self, event: ClientEvent) -> None:
        match event:
            case Append():
                await self._append(event)
            case Commit():
                await self._commit()
            case Clear():
                await self._clear()
            case SessionUpdate():
                await self._update(event)
            case LedgerRequest():
                await self._tell(replies.session_ledger(self.ledger.object(), is_last=False))
            case SessionEnd():
                await self.finish()
                raise SessionOver

    async def finish(self) -> None:
        """Writes down what is there, and tells the last ledger."""
        if self._stream:
            samples, probabilities = await self._stream.end()
            self._stream = None
            await self._listen(samples, probabilities)
        if turn := self._turns.turn:
            self._turns.commit(self._sound.end)
            await self._stopped(turn)
        await self._ear.finish()
        await self._tell(replies.session_ledger(self.ledger.object(), is_last=True))

    async def _update(self, event: SessionUpdate) -> None:
        config = self._config.updated(event.session)
        asked = _plan(self._context, config)
        if self._stream and (config.format != self._config.format or asked.model is not self._ear.plan.model):
            raise INVALID_REQUEST(
                "the format and the model cannot change once sound has come; open another session", param="session"
            )
        if config.turn_detection != self._config.turn_detection:
            if self._turns.turn:
                raise INVALID_REQUEST(
                    "`turn_detection` cannot change within a turn; commit or clear the buffer first",
                    param="session.audio.input.turn_detection",
                )
            self._turns = TurnDetector(config.turn_detection, self._sound.end)
        self._config = config
        if asked.model is not self._ear.plan.model:
            self._ear.plan = asked
            self._ear.wake()
        self._ear.plan = asked
        await self._tell(replies.session_updated(self._object()))

    async def _append(self, event: Append) -> None:
        sound = event.sound(self._config.format)
        seconds = len(sound) / self._config.format.sample_bytes / self._config.format.sample_rate
        self._refuse_beyond(seconds)
        if self._stream is None:
            await self._begin()
        assert self._stream
        try:
            samples, probabilities = await self._stream.listen(sound)
        except ListenerFailed:
            raise UPSTREAM_ERROR() from None
        await self._listen(samples, probabilities)

    def _refuse_beyond(self, seconds: float) -> None:
        """Refuses what is ahead of real time and would not fit. Raises BUFFER_FULL."""
        waiting_s = (self._sound.end - self._sound.start) / RATE
        if waiting_s + seconds > REALTIME_BUFFER_S and seconds > REALTIME_BUFFER_S:
            raise BUFFER_FULL(f"{seconds:.1f} s of sound came at once; send at most {REALTIME_BUFFER_S} s")

    async def _begin(self) -> None:
        """The first sound: from now on the session costs something."""
        self._account = await self._resources.enter_async_context(
            await self._context.bill(self._ear.plan.model, {"audio_seconds": MINUTE_S}, "audio_seconds", is_stream=True)
        )
        self._stream = self._context.service.listener.stream(self._config.format.object())

    async def _listen(self, samples: bytes, probabilities: Any) -> None:
        self._sound.add(samples)
        self.ledger.receive(len(samples) // 2)
        had = self._turns.turn
        for change in self._turns.listen(probabilities, self._sound.end):
            await self._changed(change)
        turn = self._turns.turn
        if turn and turn is not had and self._turns.vad is None:
            self.ledger.open(turn)
        self._ear.follow(turn if self._turns.vad else None)
        self._forget()

    async def _changed(self, change: Change) -> None:
        if change.kind == "stopped":
            await self._stopped(change.turn)
            return
        self.ledger.open(change.turn)
        await self._tell(replies.speech_started(change.turn.item_id, change.turn.start // MS))

    async def _stopped(self, turn: Turn) -> None:
        if self._turns.vad:
            await self._tell(replies.speech_stopped(turn.item_id, turn.end // MS))
        for event in replies.committed(turn.item_id, self._last_item):
            await self._tell(event)
        self._last_item = turn.item_id
        if self._account:
            will_be_s = math.ceil(self.ledger.heard / RATE + turn.seconds)
            await self._account.expect(audio_seconds=MINUTE_S * math.ceil(will_be_s / MINUTE_S))
        self._ear.hear(turn)

    async def _commit(self) -> None:
        was_open = self._turns.turn
        turn = self._turns.commit(self._sound.end)
        if turn is None:
            raise BUFFER_EMPTY("the buffer is empty; append sound before you commit it")
        if was_open is None:
            self.ledger.open(turn)
        await self._stopped(turn)

    async def _clear(self) -> None:
        if turn := self._turns.clear(self._sound.end):
            self._ear.drop(turn)
            self.ledger.lose(turn, "cleared")
        self._forget()
        await self._tell(replies.cleared())

    def _forget(self) -> None:
        needed_from = self._ear.needed_from
        self._sound.forget_before(
            self._turns.needed_from if needed_from is None else min(needed_from, self._turns.needed_from)
        )

    async def drafted(self, turn: Turn, text: str) -> None:
        """Tells the words that are new; the last one may be half a word."""
        words = text.split()[:-1]
        if len(words) > turn.sent:
            await self._tell(replies.delta(turn.item_id, _piece(words, turn.sent)))
            turn.sent = len(words)

    async def transcribed(self, turn: Turn, text: str) -> None:
        words = text.split()
        if len(words) > turn.sent:
            await self._tell(replies.delta(turn.item_id, _piece(words, turn.sent)))
        self.ledger.hear(turn)
        self._forget()
        if self._account:
            await self._account.progress(audio_seconds=math.ceil(self.ledger.heard / RATE))
        await self._tell(replies.completed(turn.item_id, text, round(turn.seconds, 3), self.ledger.object()))

    async def failed(self, turn: Turn, error: ApiError) -> None:
        self.ledger.lose(turn, error.fault.code)
        await self._tell(replies.failed(turn.item_id, error, self.ledger.object()))

    def _object(self) -> replies.Event:
        config, model = self._config, self._ear.plan.model
        shown = config.model_copy(update={"transcription": config.transcription.model_copy(update={"model": model.id})})
        return replies.session_object(self.id, shown, self._expires_at)


def _piece(words: list[str], sent: int) -> str:
    return (" " if sent else "") + " ".join(words[sent:])


def _plan(context: RequestContext, config: AudioInput) -> TranscriptionPlan:
    """Raises NOT_CONFIGURED, MODEL_NOT_FOUND, LANGUAGE_NOT_SUPPORTED, before anything is woken."""
    models, request = context.service.catalog.transcription, config.transcription.request()
    default = next((model.id for model in models.values() if model.is_default), None)
    return plan(request, context.pick(models, request.model, default))
