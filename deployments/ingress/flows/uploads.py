"""Uploads: a ticket for a recording, and the recording itself.

issue(context, request) -> Ticket     a ticket; the engine that will listen wakes up
store(service, ticket, chunks)        the bytes, once, into the store as they come
need_open(service, ticket_id)         asked while they come: whether the ticket is still good
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

from concurrency.fairness import OwnerCounter
from contract.errors import (
    ALREADY_UPLOADED,
    BUSY,
    INVALID_REQUEST,
    NOT_CONFIGURED,
    NOT_FOUND,
    REQUEST_TOO_LARGE,
    ApiError,
)
from contract.transcription.request import TranscriptionRequest, choose
from contract.transcription.uploads import UploadRequest
from deployments.ingress.context import RequestContext, Service
from state.tickets import Ticket

AT_ONCE = 2
"""PUTs of one ticket: a client with a dead connection may begin again before that is known here."""

_under_way = OwnerCounter()
"""PUTs by ticket."""


async def issue(context: RequestContext, request: UploadRequest) -> Ticket:
    """A ticket. Nothing is billed, but who may spend nothing has no use for it.

    Raises NOT_CONFIGURED, a spend limit, STORE_FULL, and TOO_MANY_UPLOADS.
    """
    offered = context.offered(context.service.catalog.transcription)
    model = choose(TranscriptionRequest(model=request.model), offered)
    if model is None:
        raise NOT_CONFIGURED()
    await context.service.state.ledger.require_funds(context.caller)
    free = await context.service.state.blobs.free_bytes()
    tickets = context.service.state.tickets
    ticket = await tickets.issue(context.caller, request.content_type, request.size, free)
    context.engine(model).warm()
    return ticket


async def store(service: Service, ticket: Ticket, chunks: AsyncGenerator[bytes, None]) -> int:
    """Stores the recording that `ticket` is for; returns its length in bytes.

    Raises REQUEST_TOO_LARGE as soon as it is longer than the ticket allows, INVALID_REQUEST for an empty one,
    ALREADY_UPLOADED or NOT_FOUND if the ticket was used meanwhile, STORE_FULL, and BUSY, TOO_MUCH_AT_ONCE or OVERLOADED
    beside too many others, and what `chunks` raises. Nothing is kept then.
    """
    blob = ticket.new_blob()
    with service.concurrency.upload(ticket.org_id), _one_of_few(ticket):
        async with aclosing(chunks), aclosing(_bounded(chunks, ticket.size_bytes)) as body:
            length = await service.state.blobs.put(blob, body)
        # Whatever breaks off from here on may have been recorded, so the bytes stay: if they belong to nobody, they
        # go with the ticket.
        if not await service.state.tickets.uploaded(ticket.id, blob):
            await service.state.blobs.delete(blob)
            refuse_closed(await service.state.tickets.find(ticket.id), service.state.clock())
            raise _already_uploaded()
        return length


async def need_open(service: Service, ticket_id: str) -> None:
    """Raises as `refuse_closed` for the current ticket. While the database does not answer, the upload continues."""
    try:
        ticket = await service.state.tickets.find(ticket_id)
    except ApiError:
        return
    refuse_closed(ticket, service.state.clock())


def refuse_closed(ticket: Ticket | None, now_s: float) -> None:
    """Raises NOT_FOUND or ALREADY_UPLOADED for a ticket that takes no recording any more."""
    if ticket is None or ticket.state == "consumed" or ticket.expires_at <= now_s:
        raise NOT_FOUND("the ticket of this address has been used or has expired; get a new ticket")
    if ticket.state == "uploaded":
        raise _already_uploaded()


def _already_uploaded() -> ApiError:
    return ALREADY_UPLOADED("a recording has already been uploaded under this ticket; get a new ticket for another one")


def too_long(size_bytes: int) -> ApiError:
    """A recording is longer than its ticket said."""
    return REQUEST_TOO_LARGE(f"the recording is longer than the {size_bytes} bytes that its ticket allows")


def nothing_came() -> ApiError:
    """An empty file."""
    return INVALID_REQUEST("the body is empty; send the bytes of the recording")


@contextmanager
def _one_of_few(ticket: Ticket) -> Iterator[None]:
    if not _under_way.take(ticket.id, limit=AT_ONCE):
        raise BUSY(f"{AT_ONCE} uploads under this ticket are running; wait until one of them ends")
    try:
        yield
    finally:
        _under_way.give_back(ticket.id)


async def _bounded(chunks: AsyncGenerator[bytes, None], most_bytes: int) -> AsyncGenerator[bytes, None]:
    length = 0
    async for chunk in chunks:
        length += len(chunk)
        if length > most_bytes:
            raise too_long(most_bytes)
        yield chunk
    if not length:
        raise nothing_came()
