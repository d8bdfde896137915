"""The structuring pass of a transcription, beside it while it runs.

    async with Formatting(context, language, formatter) as formatting:
        formatting.add(heard.segments)                    for every part
        ...
        formatted = await formatting.finish(transcript.text)

A chat model gets piece after piece as they are heard, as if the caller had sent them to POST /chat/completions: billed
so, refused so. Without a model, rules do it when all is heard. Either way the verdict is taken over the whole text.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from autoscaling.engine import Timings
from contract.catalog import ChatModel
from contract.errors import ApiError, without_text
from contract.transcription.engine import Segment
from contract.transcription.transcript import NO_SPACES, Formatted
from deployments.ingress.context import RequestContext
from deployments.ingress.flows import chat
from text.formatting.request import NoAnswer, answer_of, joined, pieces, request_for
from text.formatting.rules import structured
from text.formatting.verdict import judge, unformatted

log = logging.getLogger(f"parlance.{__name__}")

FORMAT_WAIT_S = 30.0
"""How long a whole transcript waits for its structure."""

PIECES_AT_ONCE = 2
"""Of one transcript, under way in the engine."""

FAILED = "formatter_failed"
BUSY = "formatter_busy"
LATE = "formatter_timeout"
SPEND_LIMIT = "spend_limit"


class Formatting:
    """The pass over one transcript. Leaving it as a context manager, or `close`, ends whatever still runs.

    Args:
        context: of the request that is transcribed.
        language: of the speech, if it is known.
        formatter: a chat model that is set up and open to the caller; None for the rules.
    """

    def __init__(self, context: RequestContext, language: str | None, formatter: ChatModel | None) -> None:
        self._context = context
        self._formatter = formatter
        self._space = "" if language in NO_SPACES else " "
        self._segments: list[Segment] = []
        self._rest = ""
        self._pieces: list[str] = []
        self._tasks: list[asyncio.Task[str]] = []
        self._timings: list[Timings] = []
        self._free = asyncio.Semaphore(PIECES_AT_ONCE)
        self._error: Exception | None = None
        if formatter:
            context.engine(formatter).warm()

    def add(self, segments: Sequence[Segment]) -> None:
        """Takes what was heard, and begins with what is whole of it."""
        self._segments += segments
        if self._formatter:
            self._rest += "".join(segment.text + self._space for segment in segments if segment.text)
            self._begin(self._formatter, is_last=False)

    async def finish(self, transcript: str, wait_s: float = FORMAT_WAIT_S) -> Formatted:
        """The transcript with structure, or as it was and why, after `wait_s` at the latest. Raises nothing."""
        try:
            async with asyncio.timeout(wait_s):
                text = await self._text(transcript)
                return await asyncio.to_thread(judge, transcript, text)
        except TimeoutError:
            self._forgive()
            return unformatted(transcript, LATE)
        except Exception as error:
            return unformatted(transcript, _reason(error))
        finally:
            await self.close()

    async def close(self) -> None:
        """Ends what still runs. Whoever leaves in the middle pays what chat costs then."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _forgive(self) -> None:
        """What is ended from here on was no client's wish, so nothing is owed for what engines have begun."""
        for timings in self._timings:
            timings.has_begun = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _text(self, transcript: str) -> str:
        if self._formatter is None:
            return await asyncio.to_thread(structured, transcript, tuple(self._segments))
        self._begin(self._formatter, is_last=True)
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._error:
            raise self._error
        return joined(self._pieces, [task.result() for task in self._tasks])

    def _begin(self, formatter: ChatModel, is_last: bool) -> None:
        """Starts with every piece that is whole, unless one has failed already."""
        whole, self._rest = pieces(self._rest, is_last)
        if self._error:
            return
        self._pieces += whole
        self._tasks += [asyncio.create_task(self._structured_by(formatter, piece)) for piece in whole]

    async def _structured_by(self, formatter: ChatModel, piece: str) -> str:
        """One piece; empty if the pass has failed. The first failure ends the others: half of it is worth nothing."""
        try:
            async with self._free:
                # Its own timings: those of the request are the transcriber's.
                timings = Timings()
                self._timings.append(timings)
                context = replace(self._context, timings=timings)
                # Billed whether or not it can be used: that is no fault of the engine's.
                reply = await chat.complete(context, formatter, request_for(piece, formatter), lambda reply: reply)
                return answer_of(reply)
        except Exception as error:
            self._error = self._error or error
            self._forgive()
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()
            return ""


def _reason(error: Exception) -> str:
    """The code that an answer gives. What is no refusal is our own fault, and logged."""
    if isinstance(error, ApiError):
        return {402: SPEND_LIMIT, 429: BUSY, 503: BUSY}.get(error.fault.status, FAILED)
    if not isinstance(error, NoAnswer):
        log.error("a formatting pass failed with an internal error: %s", without_text(error))
    return FAILED
