"""`Idempotency-Key`: a POST that creates or bills is done once, however often it is sent.

    return await once(admitted, partial(_answer, admitted, model, request))

Call it after the body was read and judged: what could never succeed claims no key. Kept for 24 hours, for one API key
and one path (with and without `/v1` are one):

    done                the same status, body and headers again, with `Idempotent-Replayed: true`
    still running       409 IDEMPOTENCY_IN_PROGRESS
    another body        422 IDEMPOTENCY_MISMATCH
    too many are kept   429 RATE_LIMIT_EXCEEDED
    raised              nothing is kept, whatever the error: the next request with this key does the work
    longer than 256 KiB the answer goes out once and is not kept; repetitions get 409 IDEMPOTENCY_FINISHED
    keep_body=False     the same, for answers that must not be stored
    a stream            the header is ignored: its answer is never whole in one place

Keyed work does not stop when its client goes: the key is for clients who lose the connection and ask again, and what
was billed must not be thrown away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from starlette.responses import Response

from concurrency.background import in_background
from contract.errors import without_text
from deployments.ingress.context import exchange_of
from deployments.ingress.front.admission import Admitted
from state.idempotency import HEADER, KEY_PATTERN, StoredReply

log = logging.getLogger(f"parlance.{__name__}")

REPLAYED = "idempotent-replayed"

ACCEPTS_KEY: dict[str, Any] = {
    "parameters": [
        {
            "name": HEADER,
            "in": "header",
            "required": False,
            "description": "Sent again within 24 hours with the same body, the request gets the first answer and is "
            "not billed twice. Ignored for streams.",
            "schema": {"type": "string", "pattern": f"^{KEY_PATTERN.pattern}$"},
        }
    ]
}
"""`openapi_extra` of a route that uses `once`."""


async def once(admitted: Admitted, work: Callable[[], Awaitable[Response]], *, keep_body: bool = True) -> Response:
    """The reply of `work`, which runs unless a request with the same `Idempotency-Key` has run it.

    `keep_body=False` is for answers that must not be stored: repetitions get 409 IDEMPOTENCY_FINISHED.

    Raises INVALID_REQUEST for a malformed key, IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_MISMATCH, IDEMPOTENCY_FINISHED,
    STATE_UNAVAILABLE, and what `work` raises.
    """
    values = admitted.request.headers.getlist(HEADER)
    if not values:
        return await work()
    key = ", ".join(values)  # several of them together are one that no pattern allows
    task: asyncio.Task[Response] = in_background(_claim_and_run(admitted, key, work, keep_body))
    # What the request holds of the budgets it holds until its reply is sent; until the work is done if its client goes.
    exchange = exchange_of(admitted.request.scope)
    resources = exchange.resources.pop_all()
    try:
        return await asyncio.shield(task)
    finally:
        if task.done():
            exchange.resources.push(resources)
        else:
            task.add_done_callback(lambda _: resources.close())


async def _claim_and_run(
    admitted: Admitted, key: str, work: Callable[[], Awaitable[Response]], keep_body: bool
) -> Response:
    route = f"POST {admitted.request.scope['path'].removeprefix('/v1')}"
    store = admitted.context.service.state.idempotency
    attempt = await store.begin(admitted.context.caller, route, key, admitted.body_sha256)
    if isinstance(attempt, StoredReply):
        return Response(attempt.body, attempt.status, {**attempt.headers, REPLAYED: "true"})
    try:
        reply = await work()
    except BaseException:
        # Should the database refuse, the claim ends by itself with its lease.
        with suppress(Exception):
            await attempt.abandon()
        raise
    # Before the reply goes out, so that a client who has seen it can never run the work again.
    headers = {name: value for name, value in reply.headers.items() if name != "content-length"}
    try:
        await attempt.finish(reply.status_code, headers, bytes(reply.body) if keep_body else None)
    except Exception as error:
        # Of any kind: the work is done and billed. Repetitions hear that it runs.
        request_id, text = admitted.context.exchange.request_id, without_text(error)
        log.error("could not store the answer of request %s for its idempotency key: %s", request_id, text)
    return reply
