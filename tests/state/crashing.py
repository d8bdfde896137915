"""A process that dies on command. Run by `test_crashes.py` as `python -m tests.state.crashing`.

Reads lines `<work> <n> <database url> <log>` and forks for each: the child does the work and dies at the n-th
failpoint. It writes to the log whatever it was told is done. Answers `<exit code> <failpoints passed>`; where nobody is
to die, n is large.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Engine, event

from contract.access import TARIFFS, Caller, Scope
from contract.errors import ApiError
from contract.limits import PENDING_DRAFTS
from deployments.ingress.flows.uploads import store
from deployments.ingress.front.concurrency import ConcurrencyLimits
from state import keys
from state.accounts import api_keys
from state.accounts.authentication import PEPPER
from state.billing.ledger import Ledger
from state.blobs.base import Blobs
from state.blobs.open import open_blobs
from state.database.base import Database
from state.database.open import connect, open_database
from state.drafts import Adoption, Draft, DraftClaim, Drafts
from state.keys import Secrets
from state.tickets import Tickets
from tests.state.books import of_key
from tests.state.drafts import COST, PLAN, made

DIED = 77
WORKERS = 5
REQUESTS_EACH = 4

failpoints = ctypes.CDLL(None)


def fork_and_work(work: str, n: int, url: str, log: str) -> tuple[int, int]:
    """Runs one child to its end. Returns its exit code and how many failpoints a finished one passed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            journal = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            failpoints.failpoints_arm(n)
            asyncio.run(WORK[work](url, lambda *words: os.write(journal, (" ".join(words) + "\n").encode()), n))
            os.write(writer, str(failpoints.failpoints_passed()).encode())
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{work}: {error!r}\n")
            os._exit(1)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    passed = os.read(reader, 100)
    os.close(reader)
    return os.waitstatus_to_exitcode(status), int(passed or 0)


async def bill(url: str, done: Callable[..., Any], seed: int) -> None:
    """Reserves, tops up, settles and voids from several tasks, and makes and revokes keys."""
    if url.startswith("postgresql"):
        _add_failpoints_around_statements()
    database = connect(url)
    chance, ledger = random.Random(seed), Ledger(database)

    async def worker(number: int) -> None:
        for turn in range(REQUESTS_EACH):
            await _one_request(ledger, chance, f"{number}-{turn}", done)
            failpoints.failpoint()

    await asyncio.gather(*(worker(number) for number in range(WORKERS)), _manage_keys(database, done))
    await ledger.close()
    await database.close()


async def _one_request(ledger: Ledger, chance: random.Random, name: str, done: Callable[..., Any]) -> None:
    user = chance.choice([None, 1])
    caller = Caller(1, "acme", "key", TARIFFS["pro"], frozenset(Scope), user, user and "eve", org_limited=True)
    try:
        hold = await ledger.reserve(
            caller, line="chat:m", model="m", estimate_micro_eur=chance.randint(1, 60), request_id=name
        )
        failpoints.failpoint()
        if chance.random() < 0.3:
            await hold.top_up(chance.randint(1, 30))
    except ApiError:
        return
    if chance.random() < 0.2:
        await hold.void()
        done("voided", hold.entry.id)
    else:
        charged = await hold.settle(chance.randint(0, 90), 1, "tokens")
        done("settled", hold.entry.id, str(charged))


async def _manage_keys(database: Database, done: Callable[..., Any]) -> None:
    pepper = Secrets((b"s" * 32,)).derive(PEPPER)
    who = {"org_id": 1, "user_id": None, "scopes": frozenset({Scope.CHAT}), "label": None, "now_s": 0}
    for _ in range(2):
        key = keys.mint()
        await database.run(partial(api_keys.store, key=key, pepper=pepper, **who))
        done("made", key.public_id)
        await database.run(partial(api_keys.revoke, public_id=key.public_id, now_s=1))
        done("revoked", key.public_id)


async def migrate(url: str, done: Callable[..., Any], _seed: int) -> None:
    await (await open_database(url)).close()
    done("migrated")


async def upload(url: str, done: Callable[..., Any], _seed: int) -> None:
    """Takes recordings under tickets of organisation 1, and uses some of those up."""
    database, blobs = connect(url), open_blobs(Path(url.removeprefix("sqlite:///")).parent)
    tickets = Tickets(database, blobs)
    service: Any = SimpleNamespace(state=SimpleNamespace(tickets=tickets, blobs=blobs), concurrency=ConcurrencyLimits())

    async def recording(number: int) -> None:
        ticket = await tickets.issue(of_key(), "audio/webm", len(bytes_of("upl_" + "x" * 26)))
        done("issued", ticket.id)
        await store(service, ticket, _in_pieces(ticket.id))
        done("uploaded", ticket.id)
        if number % 2:
            done("consuming", ticket.id)
            consumed = await tickets.consume(1, ticket.id)
            done("consumed", ticket.id)
            await tickets.discard(consumed)
            done("discarded", ticket.id)

    await asyncio.gather(*(recording(number) for number in range(WORKERS)))
    await database.close()


async def design(url: str, done: Callable[..., Any], _seed: int) -> None:
    """Orders drafts of organisation 1 and makes them; one is adopted, one discarded, one adopted and discarded."""
    database, blobs = connect(url), open_blobs(Path(url.removeprefix("sqlite:///")).parent)
    drafts = Drafts(database, blobs, time.time)
    caller = Caller(1, "acme", "key", TARIFFS["pro"], frozenset(Scope), None, None, org_limited=True)

    async def draft(number: int) -> None:
        ordered = await drafts.order(caller, PLAN, model="m", line="l", estimate_micro_eur=60, request_id=str(number))
        done("ordered", ordered.id)
        held = await drafts.claim(ordered.id)
        assert held is not None
        await make(drafts, blobs, held)
        done("ready", ordered.id)
        if number != 1:
            done("adopting", ordered.id)
            await drafts.adopt(1, ordered.id, Adoption("qwen", ()))
            done("adopted", ordered.id)
        if number:
            done("discarding", ordered.id)
            await drafts.discard(1, ordered.id)
            done("discarded", ordered.id)

    await asyncio.gather(*(draft(number) for number in range(PENDING_DRAFTS)))
    await database.close()


async def make(drafts: Drafts, blobs: Blobs, claim: DraftClaim) -> Draft | None:
    voice = made(claim)
    await blobs.put(voice.clip_blob, _in_pieces(voice.clip_blob))
    await blobs.put(voice.sample_blob, bytes_of(voice.sample_blob))
    return await drafts.finish(claim, voice, COST)


def bytes_of(name: str) -> bytes:
    return name.encode() * 3000


async def _in_pieces(name: str) -> AsyncIterator[bytes]:
    data = bytes_of(name)
    for start in range(0, len(data), 20_000):
        yield data[start : start + 20_000]


def _add_failpoints_around_statements() -> None:
    # The server writes the files, so this process dies between what it tells the server.
    for moment in ("before_cursor_execute", "after_cursor_execute", "begin", "commit", "rollback"):
        event.listen(Engine, moment, lambda *_: failpoints.failpoint())


WORK = {"bill": bill, "migrate": migrate, "upload": upload, "design": design}

if __name__ == "__main__":
    for line in sys.stdin:
        work, n, url, log = line.split()
        print(*fork_and_work(work, int(n), url, log), flush=True)
