"""Asks the transcriber about the turns of one session, one call at a time.

    a turn is open         a draft each DRAFT_EVERY_S, where the engine is free and nothing waits
    speech pauses          a draft of all of the turn: it is the text, if the turn ends there
    the turn has ended     the text, retried where the engine fails

A draft gives way to a turn that has ended. Each call is an ordinary transcription, in line with all others of its
organisation; the sound stays here until its text is known, so that a dead replica costs time and no words.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import aclosing

from audio.listener import RATE
from autoscaling.engine import CallContext
from contract.errors import BUSY, INTERNAL_ERROR, PROVIDER_BUSY, UPSTREAM_TIMEOUT, ApiError, without_text
from contract.transcription.engine import TranscriptionEngine, joined
from contract.transcription.request import TranscriptionPlan
from deployments.ingress.context import RequestContext
from deployments.ingress.flows.realtime.notifier import SessionNotifier
from deployments.ingress.flows.realtime.turns import LiveTurn, SessionSound

log = logging.getLogger(f"parlance.{__name__}")

DRAFT_EVERY_S = 1.0
"""Seconds between the beginnings of two drafts, and of speech before the first."""

RETRY_S = (0.5, 2.0, 5.0)
"""Pauses after failures of the engine; one more is the last. Serve may need seconds to know that a replica is dead."""
BUSY_S = 0.5
"""Pause where the engine takes no more, for as long as the model has for an answer."""


class TurnTranscriber:
    """The calls of one session.

    Args:
        context: the request that the calls are of.
        sound: the samples of the turns.
        notifier: receives the texts.

    Attributes:
        plan: settings of calls of the engine; an update of the session changes it.
    """

    def __init__(
        self, context: RequestContext, plan: TranscriptionPlan, sound: SessionSound, notifier: SessionNotifier
    ) -> None:
        self.plan = plan
        self._context, self._sound, self._notifier = context, sound, notifier
        self._ended: deque[LiveTurn] = deque()
        self._current: LiveTurn | None = None
        self._open: LiveTurn | None = None
        self._drafting: asyncio.Task[str] | None = None
        self._work: asyncio.Task[None] | None = None
        self._next_draft_s = 0.0

    @property
    def needed_from(self) -> int | None:
        """Start of the sound of the turns without a text; None where there are none."""
        first = self._current or (self._ended[0] if self._ended else self._open)
        return first.start if first else None

    def follow(self, turn: LiveTurn | None) -> None:
        """Takes note that the open turn has grown; None in silence."""
        self._open = turn
        self._start()

    def enqueue(self, turn: LiveTurn) -> None:
        """Takes a turn that has ended. A draft of all of it may be on its way already."""
        self._ended.append(turn)
        self._open = None
        if self._drafting and turn.draft_end != turn.end:
            self._drafting.cancel()
        self._start()

    def discard_draft(self) -> None:
        """Gives up the open turn."""
        self._open = None
        if self._drafting:
            self._drafting.cancel()

    async def finish(self) -> None:
        """Returns once every turn that has ended has its text, or has failed."""
        while self._work:
            await asyncio.wait({self._work})

    async def close(self) -> None:
        """Ends the call that is under way."""
        if self._work:
            self._work.cancel()
            await asyncio.wait({self._work})

    def _start(self) -> None:
        if self._work is None and (self._ended or self._wants_draft()):
            self._work = asyncio.create_task(self._run(), name="transcriber")

    async def _run(self) -> None:
        try:
            while self._ended or self._wants_draft():
                try:
                    if self._ended:
                        await self._end_turn(self._ended.popleft())
                    elif self._open:
                        await self._draft(self._open)
                except Exception as error:
                    log.error("a turn of a live session failed with an internal error: %s", without_text(error))
        finally:
            # Here and not once the task is done: a turn that comes in between would wait for ever.
            self._work = None

    def _wants_draft(self) -> bool:
        turn = self._open
        if turn is None or turn.draft_end == turn.end:
            return False
        if turn.is_paused:
            return True
        engine = self._context.engine(self.plan.model)
        return (
            turn.end - turn.spoken_from >= DRAFT_EVERY_S * RATE
            and asyncio.get_running_loop().time() >= self._next_draft_s
            and engine.free() > 0
            and not engine.view().waiting
        )

    async def _draft(self, turn: LiveTurn) -> None:
        """Transcribes the turn up to now. A failure is no matter: the turn is transcribed when it has ended."""
        loop, end = asyncio.get_running_loop(), turn.end
        began_s, turn.draft, turn.draft_end = loop.time(), None, end
        self._drafting = task = asyncio.create_task(self._reserved(turn, end), name="draft")
        try:
            await asyncio.wait({task})
        finally:
            self._drafting = None
            task.cancel()
        # Drafts take half of an engine's time at most.
        self._next_draft_s = max(began_s + DRAFT_EVERY_S, 2 * loop.time() - began_s)
        if task.cancelled() or task.exception():
            return
        turn.draft = task.result()
        if not turn.is_closed:
            await self._notifier.drafted(turn, turn.draft)

    async def _reserved(self, turn: LiveTurn, end: int) -> str:
        await self._notifier.reserve()
        return await self._ask(turn, end)

    async def _end_turn(self, turn: LiveTurn) -> None:
        self._current = turn
        try:
            await self._notifier.wait_for_rate(turn)
            await self._notifier.transcribed(turn, await self._transcript(turn))
        except ApiError as error:
            await self._notifier.failed(turn, error)
        except Exception:
            await self._notifier.failed(turn, INTERNAL_ERROR())
            raise
        finally:
            self._current = None

    async def _transcript(self, turn: LiveTurn) -> str:
        """The text of a turn that has ended. Raises ApiError where there is none."""
        if turn.draft is not None and turn.draft_end == turn.end:
            return turn.draft
        try:
            async with asyncio.timeout(self.plan.model.answer_s):
                return await self._insist(turn)
        except TimeoutError:
            turn.call = None
            raise UPSTREAM_TIMEOUT() from None

    async def _insist(self, turn: LiveTurn) -> str:
        """The text. Raises the error of the last attempt."""
        pauses = iter(RETRY_S)
        while True:
            try:
                return await self._ask(turn, turn.end)
            except ApiError as error:
                if error.fault in (BUSY, PROVIDER_BUSY):
                    pause_s: float | None = BUSY_S
                else:
                    pause_s = next(pauses, None) if error.fault.status >= 500 else None
                if pause_s is None:
                    raise
            await asyncio.sleep(pause_s)

    async def _ask(self, turn: LiveTurn, end: int) -> str:
        """The text of a turn up to `end`. Waits for a cold engine."""
        engine, plan = self._context.engine(self.plan.model), self.plan
        call = CallContext(self._context.owner, names=self._context.exchange.names)
        job = plan.job(self._sound.wav(turn.start, end), self._context.owner)
        turn.begin(call.timings, end)
        try:
            await engine.ready(plan.model.answer_s, timings=call.timings)
            async with aclosing(engine.stream(TranscriptionEngine.transcribe, job, context=call)) as updates:
                return joined([segment.text async for update in updates for segment in update.segments])
        except Exception:
            turn.call = None  # A call that fails is not owed; one that is given up is.
            raise
