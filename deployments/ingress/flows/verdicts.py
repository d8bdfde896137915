"""Verification of speech: a transcriber of this server reads back what was spoken.

    listening = SpeechVerification(context, prepared)
    listening.blocks(headers) -> AudioBlock...    the file: as always with `report`, the best of some with `retry`
    await listening.verdict()                     the verdict
    find(context, request_id) -> bytes            a verdict that is fetched later; empty while it does not exist

Speech is transcribed once it is out, or complete: that takes nothing from the time to the first byte. Where no model
can judge, the text is spoken as always, and the verdict says why.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from dataclasses import replace

from autoscaling.engine import CallContext, Timings
from concurrency.background import in_background
from contract.access import Scope
from contract.errors import NOT_FOUND, ApiError
from contract.speech.engine import AudioBlock, SpeechEngine, SpeechJob
from contract.speech.tags import pieces
from contract.speech.verdict import VERDICT_AGAIN_S, VERDICT_ATTEMPTS, Reason, SpeechVerdict, unverified
from contract.telemetry import VERDICTS
from contract.transcription.engine import joined
from deployments.ingress.context import RequestContext
from deployments.ingress.flows import speech
from deployments.ingress.flows.speech import PreparedSpeech
from deployments.ingress.verifier import SpeechVerifier, verifier_for


class SpeechVerification:
    """One request with verification of its speech. Raises MISSING_SCOPE without the scope of transcriptions."""

    def __init__(self, context: RequestContext, prepared: PreparedSpeech) -> None:
        context.caller.require(Scope.TRANSCRIBE)
        self._context, self._prepared = context, prepared
        service = context.service
        offered = context.offered(service.catalog.transcription)
        self._verifier = verifier_for(offered, service.engines, prepared.runtime, prepared.job)
        words = pieces(prepared.job.text, prepared.choice.model)
        self._text = joined(piece for piece in words if isinstance(piece, str))
        self._verdict: asyncio.Task[SpeechVerdict] | None = None

    def blocks(self, headers: dict[str, str]) -> AsyncGenerator[AudioBlock, None]:
        """The file. With `retry`, `headers` hold the verdict; they are complete when the first block is."""
        if self._prepared.request.verify == "retry" and isinstance(self._verifier, SpeechVerifier):
            return self._best(headers)
        return self._stream_as_it_comes()

    async def verdict(self) -> SpeechVerdict:
        """The verdict, once the last block was taken. To cancel this wait does not end the transcription."""
        assert self._verdict
        return await asyncio.shield(self._verdict)

    async def _stream_as_it_comes(self) -> AsyncGenerator[AudioBlock, None]:
        with ExitStack() as memory:
            take = memory.enter_context(self._context.service.concurrency.body(self._context.caller))
            sound, reason = bytearray(), self._verifier if isinstance(self._verifier, str) else None
            has_begun = is_whole = False
            try:
                async with aclosing(speech.blocks(self._context, self._prepared)) as blocks:
                    async for block in blocks:
                        if not has_begun:
                            in_background(self._store(b""))  # a request that is refused leaves nothing
                            has_begun = True
                        yield block
                        try:
                            if reason is None:
                                take(len(block.data))
                                sound += block.data
                        except ApiError:
                            reason = "busy"  # this process holds as much as it may
                            sound.clear()
                            memory.close()
                is_whole = True
            finally:
                if has_begun:
                    why: Reason | None = reason if is_whole else reason or "incomplete"
                    self._verdict = in_background(self._judge(bytes(sound), why, memory.pop_all()))

    async def _judge(self, sound: bytes, reason: Reason | None, memory: ExitStack) -> SpeechVerdict:
        """The verdict of sound that is out, and releases its `memory` then.

        Until then it is one of the requests that its key has running: else a key could have any number of these.
        """
        with memory:
            if reason is None:
                try:
                    memory.enter_context(self._context.service.concurrency.call(self._context.caller))
                except ApiError:
                    reason = "busy"
            verdict = unverified(reason) if reason else await self._judge_sound(sound)
        return await self._report(verdict)

    async def _best(self, headers: dict[str, str]) -> AsyncGenerator[AudioBlock, None]:
        """The best attempt, billed as one. No more than two are in memory."""
        context, count = self._context, 0
        best: tuple[AudioBlock, SpeechVerdict] | None = None
        async with speech.whole_bill(context, self._prepared) as (bill, job):
            with ExitStack() as memory:
                async with aclosing(self._attempts(job)) as attempts:
                    async for block, verdict in attempts:
                        count += 1
                        if best is None or _errors(verdict) < _errors(best[1]):
                            memory.close()  # of the one before
                            memory.enter_context(context.service.concurrency.reply(context.caller, len(block.data)))
                            best = block, verdict
            assert best
            block, verdict = self._prepared.billed(best[0]), replace(best[1], attempts=count)
            await bill.settle(characters=self._prepared.characters)
        self._verdict = in_background(self._report(verdict))
        headers |= {"X-Voice-Verdict": verdict.judgement, "X-Voice-Attempts": str(verdict.attempts)}
        yield block

    async def _attempts(self, job: SpeechJob) -> AsyncGenerator[tuple[AudioBlock, SpeechVerdict], None]:
        """Attempts, up to one that does not differ or repeats the one before. It raises as the first one does.

        Each further one counts as a request of the key, and none is made beyond its rate.
        """
        context, started_s, before = self._context, time.monotonic(), None
        engine = context.engine(self._prepared.choice.model)
        for number in range(VERDICT_ATTEMPTS):
            if number:
                if time.monotonic() - started_s >= VERDICT_AGAIN_S:
                    return
                rate = context.exchange.rate = await context.service.state.rates.hit(context.caller)
                if not rate.allowed:
                    return
            try:
                block = await engine.call(SpeechEngine.speak_whole, job, context=context.call)
            except ApiError:
                if number:
                    return
                raise
            with context.service.concurrency.reply(context.caller, len(block.data)):
                verdict = await self._judge_sound(block.data)
                yield block, verdict
            if verdict.judgement != "differs" or verdict.transcript == before:
                return
            before = verdict.transcript

    async def _judge_sound(self, sound: bytes) -> SpeechVerdict:
        assert isinstance(self._verifier, SpeechVerifier)
        # Times of its own: those of the reply are those of the voice.
        call = CallContext(self._context.owner, Timings(), self._context.exchange.names)
        return await self._verifier.verdict(sound, self._text, call)

    async def _report(self, verdict: SpeechVerdict) -> SpeechVerdict:
        model = self._prepared.choice.model
        self._context.service.metrics.totals[VERDICTS, (model.id, verdict.judgement)] += 1
        await self._store(json.dumps(verdict.reply(), ensure_ascii=False).encode())
        return verdict

    async def _store(self, text: bytes) -> None:
        context = self._context
        await context.service.state.verdicts.keep(context.caller, context.exchange.request_id, text)


def _errors(verdict: SpeechVerdict) -> tuple[bool, float]:
    """Order of attempts, best first: a verdict against it counts more than any number of names."""
    return verdict.judgement == "differs", verdict.word_error_rate or 0.0


async def find(context: RequestContext, request_id: str) -> bytes:
    """The verdict of a request as JSON; empty while it is not there. Raises NOT_FOUND, also for another user's."""
    text = await context.service.state.verdicts.find(context.caller, request_id)
    if text is None:
        raise NOT_FOUND(
            f"there is no verdict of a request `{request_id[:100]}`, or it is older than ten minutes; ask for one with "
            "`verify`",
            param="request_id",
        )
    return text
