"""Streams of a chat, on whichever wire it was asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Protocol

from contract.chat.engine import ChatBatch
from contract.events import DONE
from deployments.ingress.context import RequestContext
from deployments.ingress.wire.replies import PLAIN, Manners, event_stream
from deployments.ingress.wire.served import ignored, input_cut
from deployments.ingress.wire.streams import Stream


class Telling(Protocol):
    """Batches of one chat as the events of a wire."""

    def of(self, batch: ChatBatch) -> bytes:
        """What `batch` adds; may be nothing."""
        ...

    def end(self) -> Iterable[bytes]:
        """The last events, once the stream of chat is over."""
        ...


class AsMade:
    """Events of OpenAI's older wires, which engines make ready."""

    def of(self, batch: ChatBatch) -> bytes:
        return batch.events

    def end(self) -> Iterable[bytes]:
        return (DONE,)


async def chat_stream(
    context: RequestContext,
    batches: AsyncGenerator[ChatBatch, None],
    told: Telling,
    manners: Manners = PLAIN,
    left_out: Sequence[str] = (),
) -> Stream:
    """A response of what is told of `batches`. A cut of the input and what was `left_out` are told in headers."""
    headers = ignored(context, left_out)
    return await event_stream(_events(context, batches, told, headers), headers, manners=manners)


async def _events(
    context: RequestContext, batches: AsyncGenerator[ChatBatch, None], told: Telling, headers: dict[str, str]
) -> AsyncGenerator[bytes, None]:
    """What is sent; `headers` are complete when the first event is, which they are sent with."""
    async with aclosing(batches):
        async for batch in batches:
            headers |= input_cut(context, batch.cut_tokens)
            # Silence must be seen as such: it is filled.
            if events := told.of(batch):
                yield events
    for events in told.end():
        yield events
