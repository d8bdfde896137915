"""Asks the transcriber about the turns of one session, one call at a time.

    somebody speaks        a draft each DRAFT_EVERY_S, where the engine has nothing better to do
    speech pauses          a draft of all that was said: it is the text, if the turn ends there
    the turn has ended     the text, tried again where the engine fails

A draft gives way to a turn that has ended. Each call is an ordinary transcription, in line with all others of its
organisation; the sound stays here until its text is known, so that a dead replica costs time and no words.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from typing import Protocol

from audio.listener import RATE
from autoscaling.engine import CallContext
from contract.errors import BUSY, PROVIDER_BUSY, UPSTREAM_TIMEOUT, ApiError
from contract.transcription.engine import TranscriptionEngine
from contract.transcription.request import TranscriptionPlan
from deployments.ingress.context import RequestContext
from deployments.ingress.flows.realtime.sound import SessionSound
from deployments.ingress.flows.realtime.turns import LiveTurn

DRAFT_EVERY_S = 1.0
"""Seconds between the beginnings of two drafts, and of speech before the first."""

RETRY_S = (0.5, 2.0, 5.0)
"""Pauses after failures of the engine; one more is the last. Serve may need seconds to know that a replica is dead."""
BUSY_S = 0.5
"""Pause where the engine takes no more, for as long as the model has for an answer."""


class TurnAudience(Protocol):
    """Who is told what was heard."""

    async def drafted(self, turn: LiveTurn, text: str) -> None: ...
    async def transcribed(self, turn: LiveTurn, text: str) -> None: ...
    async def failed(self, turn: LiveTurn, error: ApiError) -> None: ...


class Ear:
    """The calls of one session.

    Args:
        context: whose calls they are.
        sound: where the samples of turns are.
        audience: who is told.

    Attributes:
        plan: what the transcriber is asked; an update of the session changes it.
    """

    def __init__(
        self, context: RequestContext, plan: TranscriptionPlan, sound: SessionSound, audience: TurnAudience
    ) -> None:
        self.plan = plan
        self._context, self._sound, self._audience = context, sound, audience
        self._ended: deque[LiveTurn] = deque()
        self._open: LiveTurn | None = None
        self._drafting: asyncio.Task[str] | None = None
        self._work: asyncio.Task[None] | None = None
        self._next_draft_s = 0.0

    @property
    def needed_from(self) -> int | None:
        """Where the sound of the turns begins that are not written down yet; None where there are none."""
        return self._ended[0].start if self._ended else self._open.start if self._open else None

    def wake(self) -> None:
        """Has the engine start, before anybody speaks."""
        self._context.engine(self.plan.model).warm()

    def follow(self, turn: LiveTurn | None) -> None:
        """The turn that is open has grown; None where nobody speaks."""
        self._open = turn
        self._listen()

    def hear(self, turn: LiveTurn) -> None:
        """A turn has ended: its text is wanted. A draft of all of it may be on its way already."""
        self._ended.append(turn)
        self._open = None
        if self._drafting and turn.draft_end != turn.end:
            self._drafting.cancel()
        self._listen()

    def drop(self) -> None:
        """Nobody wants the text of the open turn any more."""
        self._open = None
        if self._drafting:
            self._drafting.cancel()

    async def finish(self) -> None:
        """Returns once all turns that have ended are written down, or have failed."""
        while self._work:
            await asyncio.wait({self._work})

    async def close(self) -> None:
        """Leaves the engine alone."""
        if self._work:
            self._work.cancel()
            await asyncio.wait({self._work})

    def _listen(self) -> None:
        if self._work is None and (self._ended or self._wants_draft()):
            self._work = asyncio.create_task(self._run(), name="ear")

    async def _run(self) -> None:
        try:
            while self._ended or self._wants_draft():
                if self._ended:
                    turn = self._ended[0]
                    outcome = await self._transcript(turn)
                    self._ended.popleft()
                    await self._tell(turn, outcome)
                elif self._open:
                    await self._draft(self._open)
        finally:
            # Here and not once the task is done: what comes in between would wait for nobody.
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
        """Hears the turn up to now. What fails here is tried again when the turn has ended."""
        loop, end = asyncio.get_running_loop(), turn.end
        began_s, turn.draft, turn.draft_end = loop.time(), None, end
        self._drafting = task = asyncio.create_task(self._ask(turn.start, end), name="draft")
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
            await self._audience.drafted(turn, turn.draft)

    async def _transcript(self, turn: LiveTurn) -> str | ApiError:
        """The text of a turn that has ended, or why there is none."""
        if turn.draft is not None and turn.draft_end == turn.end:
            return turn.draft
        try:
            async with asyncio.timeout(self.plan.model.answer_s):
                return await self._insist(turn)
        except TimeoutError:
            return UPSTREAM_TIMEOUT()
        except ApiError as error:
            return error

    async def _tell(self, turn: LiveTurn, outcome: str | ApiError) -> None:
        if isinstance(outcome, str):
            await self._audience.transcribed(turn, outcome)
        else:
            await self._audience.failed(turn, outcome)

    async def _insist(self, turn: LiveTurn) -> str:
        """The text. Raises the error of the last attempt."""
        pauses = iter(RETRY_S)
        while True:
            try:
                return await self._ask(turn.start, turn.end)
            except ApiError as error:
                if error.fault in (BUSY, PROVIDER_BUSY):
                    pause_s: float | None = BUSY_S
                else:
                    pause_s = next(pauses, None) if error.fault.status >= 500 else None
                if pause_s is None:
                    raise
            await asyncio.sleep(pause_s)

    async def _ask(self, start: int, end: int) -> str:
        """What is said between two positions. A cold engine is waited for."""
        engine, plan = self._context.engine(self.plan.model), self.plan
        call = CallContext(self._context.owner, names=self._context.trace.names)
        job = plan.job(self._sound.wav(start, end), self._context.owner)
        await engine.ready(plan.model.answer_s, timings=call.timings)
        async with aclosing(engine.stream(TranscriptionEngine.transcribe, job, context=call)) as updates:
            return " ".join([segment.text async for update in updates for segment in update.segments])
