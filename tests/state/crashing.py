"""A process that is watched while it works, dies on command, or finds a disk that fails.

Run as `python -m tests.state.crashing` with `failpoints.so` preloaded. Reads jobs as lines of JSON, forks for each, and
answers its exit code. Whatever the work learns is done it notes in the trace of the job.
"""

import asyncio
import ctypes
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from sqlalchemy import Engine, event

from contract.access import TARIFFS, Caller, Scope
from contract.errors import ApiError
from contract.limits import PENDING_DRAFTS
from deployments.ingress.flows.uploads import store
from deployments.ingress.front.concurrency import ConcurrencyLimits
from state import keys, retries
from state.accounts import api_keys
from state.accounts.authentication import PEPPER
from state.billing.ledger import Ledger
from state.blobs.base import Blobs
from state.blobs.open import open_blobs
from state.database.base import Database
from state.database.open import connect
from state.drafts import Adoption, Draft, DraftClaim, Drafts
from state.keys import Keyring, Secrets
from state.open import open_state
from state.tickets import Tickets
from tests.state.books import of_key, pass_time, reserve
from tests.state.drafts import COST, PLAN, made
from tests.state.servers import temporary_folder
from tests.waiting import until

DIED = 77
WORKERS = 5
REQUESTS_EACH = 4
CLIPS = ("clip.wav", "voices/anna/clip.wav", "voices/bert/deep/er/clip.wav")
FOR_EVER = 1_000_000_000
FAR_FUTURE_S, SOON_S = 10_000_000, 0.01

failpoints = ctypes.CDLL(None)
Done = Callable[..., None]
Run = Callable[["Job"], int]
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Job:
    """One child.

    Attributes:
        work: a name of WORK.
        url: address of the database.
        trace: file for notes, and for the changes of the files below `home`.
        die_at: the moment between two statements of PostgreSQL at which the child dies.
        fail: number of the first call to fail, that of the first that does not, and the error; the same work follows
            once all is well again.
    """

    work: str
    url: str
    trace: str
    home: str = "/nowhere"
    seed: int = 0
    die_at: int = -1
    fail: tuple[int, int, int] = (0, 0, 0)

    def run(self) -> int:
        """Forks, and returns the exit code of the child."""
        if child := os.fork():
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        try:
            failpoints.failpoints_record(self.home.encode(), self.trace.encode())
            moments.left = self.die_at
            failpoints.failpoints_fail(*self.fail)
            asyncio.run(self._work())
            os._exit(0)
        except BaseException as error:
            note("raised", type(error).__name__)
            sys.stderr.write(f"{self}: {error!r}\n")
            os._exit(1)

    async def _work(self) -> None:
        await WORK[self.work](self.url, note, self.seed)
        if self.fail[1]:
            heal()
            await WORK[self.work](self.url, note, self.seed + 1)


def note(*words: str) -> None:
    failpoints.failpoints_note(" ".join(words).encode())


def heal() -> None:
    """No call fails any more. Notes how many there were."""
    note("calls", str(failpoints.failpoints_calls()))
    failpoints.failpoints_fail(0, 0, 0)


class Moments:
    """Counts moments between two statements, and ends the process at one of them."""

    left = -1
    passed = 0

    def __call__(self, *_: object) -> None:
        self.passed += 1
        if self.passed == self.left:
            os._exit(DIED)


moments = Moments()


async def answered(work: Awaitable[object], done: Done) -> bool:
    """Says if `work` came to its end; notes the answer that it got otherwise."""
    try:
        await work
    except ApiError as error:
        done("answered", error.fault.name)
        return False
    return True


async def bill(url: str, done: Done, seed: int) -> None:
    """Reserves, tops up, settles and voids from several tasks, and makes and revokes keys."""
    if url.startswith("postgresql"):
        # The server writes the files, so this process dies between what it tells the server.
        for moment in ("before_cursor_execute", "after_cursor_execute", "begin", "commit", "rollback"):
            event.listen(Engine, moment, moments)
    database = connect(url)
    chance, ledger = random.Random(seed), Ledger(database)
    late: set[str] = set()

    async def worker(number: int) -> None:
        for turn in range(REQUESTS_EACH):
            await answered(_one_request(ledger, chance, f"{number}-{turn}", late, done), done)
            moments()

    await asyncio.gather(*(worker(number) for number in range(WORKERS)), answered(_manage_keys(database, done), done))
    heal()
    await until(lambda: not ledger.backlog)
    for name in late:
        done("late", name)
    await ledger.close()
    await database.close()
    done("moments", str(moments.passed))


async def _one_request(ledger: Ledger, chance: random.Random, name: str, late: set[str], done: Done) -> None:
    user = chance.choice([None, 1])
    caller = Caller(1, "acme", "key", TARIFFS["pro"], frozenset(Scope), user, "eve" if user else None, org_limited=True)
    hold = await ledger.reserve(
        caller, line="chat:m", model="m", estimate_micro_eur=chance.randint(1, 60), request_id=name
    )
    moments()
    if chance.random() < 0.3:
        await hold.top_up(chance.randint(1, 30))
    if chance.random() < 0.2:
        await hold.void()
        done("voided", hold.entry.id)
        return
    charged = await hold.settle(chance.randint(0, 90), 1, "tokens")
    if hold.entry.id in ledger._unposted:
        late.add(hold.entry.id)
    else:
        done("settled", hold.entry.id, str(charged))


async def owe(url: str, done: Done, _seed: int) -> None:
    """Bills two requests; of one that the disk refused to sync the line may be found, with nothing left to write."""
    database = connect(url)
    ledger = Ledger(database)
    holds = [await reserve(ledger, of_key(), 9) for _ in range(2)]
    for hold in holds:
        await hold.settle(9, 1, "tokens")
    heal()
    await until(lambda: not ledger.backlog)
    for hold in holds:
        done("late", hold.entry.id)
    await ledger.close()
    await database.close()


async def _manage_keys(database: Database, done: Done) -> None:
    pepper = Secrets((b"s" * 32,)).derive(PEPPER)
    for _ in range(2):
        key = await make_key(database, pepper, org_id=1)
        done("made", key.public_id)
        await database.run(partial(api_keys.revoke, public_id=key.public_id, now_s=1))
        done("revoked", key.public_id)


async def make_key(database: Database, pepper: Keyring, org_id: int) -> keys.Key:
    key = keys.mint()
    who: dict[str, Any] = {"org_id": org_id, "user_id": None, "scopes": frozenset({Scope.CHAT}), "label": None}
    await database.run(partial(api_keys.store, key=key, pepper=pepper, **who, now_s=0))
    return key


async def start(url: str, done: Done, _seed: int) -> None:
    """Starts a server in an empty folder, which makes its secret, its database and its first key."""
    home = Path(url.removeprefix("sqlite:///")).parent
    state = await open_state(home)
    if key := await state.ensure_demo(home):
        done("key", key)
    await state.close()


async def keep(url: str, done: Done, _seed: int) -> None:
    """Stores bytes of clips without a database, whose journal would make some names in its folder durable."""
    blobs = open_blobs(Path(url.removeprefix("sqlite:///")).parent)

    async def clip(name: str) -> None:
        await blobs.put(name, in_pieces(name))
        done("first", name)
        await blobs.put(name, bytes_of("other"))
        done("other", name)
        await blobs.delete(name)
        done("deleted", name)
        await blobs.put(name, in_pieces(name))
        done("first", name)

    for name in CLIPS:
        await answered(clip(name), done)
    heal()


async def upload(url: str, done: Done, _seed: int) -> None:
    """Takes recordings under tickets of organisation 1, and uses some of those up."""
    database, blobs = connect(url), open_blobs(Path(url.removeprefix("sqlite:///")).parent)
    tickets = Tickets(database, blobs)
    service: Any = SimpleNamespace(state=SimpleNamespace(tickets=tickets, blobs=blobs), concurrency=ConcurrencyLimits())

    async def recording(number: int) -> None:
        ticket = await tickets.issue(of_key(), "audio/webm", len(bytes_of("upl_" + "x" * 26)))
        done("issued", ticket.id)
        await store(service, ticket, in_pieces(ticket.id))
        done("uploaded", ticket.id)
        if number % 2:
            done("consuming", ticket.id)
            consumed = await tickets.consume(1, ticket.id)
            done("consumed", ticket.id)
            if await blobs.find(consumed.blob) != bytes_of(ticket.id):
                done("raised", "WrongBytes")
            await tickets.discard(consumed)

    await asyncio.gather(*(answered(recording(number), done) for number in range(WORKERS)))
    heal()
    done("swept", "all")
    await pass_time(database, FAR_FUTURE_S)
    await tickets.sweep()
    await database.close()


async def design(url: str, done: Done, _seed: int) -> None:
    """Orders drafts of organisation 1 and makes them; one is adopted, one discarded, one adopted and discarded."""
    retries.RETRY_S = SOON_S  # of this process alone
    database, blobs = connect(url), open_blobs(Path(url.removeprefix("sqlite:///")).parent)
    drafts = Drafts(database, blobs, time.time)
    caller = Caller(1, "acme", "key", TARIFFS["pro"], frozenset(Scope), None, None, org_limited=True)

    async def draft(number: int) -> None:
        ordered = await drafts.order(caller, PLAN, model="m", line="l", estimate_micro_eur=60, request_id=str(number))
        done("ordered", ordered.id)
        while (held := await drafts.claim(ordered.id)) is None:  # noqa: ASYNC110
            await asyncio.sleep(SOON_S)  # where the disk refused to release it for work, that is tried again
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

    await asyncio.gather(*(answered(draft(number), done) for number in range(PENDING_DRAFTS)))
    heal()
    await database.close()


async def make(drafts: Drafts, blobs: Blobs, claim: DraftClaim) -> Draft | None:
    voice = made(claim)
    await blobs.put(voice.clip_blob, in_pieces(voice.clip_blob))
    await blobs.put(voice.sample_blob, bytes_of(voice.sample_blob))
    return await drafts.finish(claim, voice, COST)


def bytes_of(name: str) -> bytes:
    return name.encode() * 3000


async def in_pieces(name: str) -> AsyncGenerator[bytes, None]:
    data = bytes_of(name)
    for start in range(0, len(data), 20_000):
        yield data[start : start + 20_000]


@contextmanager
def running(log: IO[str] | None = None) -> Iterator[Run]:
    """Runs jobs for the block, each in a child; returns its exit code. Without a C compiler the test is skipped.

    What the children log goes to `log`, or to this process's stderr.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        reason = "needs a C compiler for the failpoints"
        pytest.skip(reason)
    with temporary_folder(in_memory=False) as folder:
        library = folder / "failpoints.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, HERE / "failpoints.c", "-ldl"], check=True)
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.state.crashing"],
            cwd=HERE.parent.parent,
            env=os.environ | {"LD_PRELOAD": str(library)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        jobs, codes = server.stdin, server.stdout
        assert jobs is not None
        assert codes is not None

        def run(job: Job) -> int:
            print(json.dumps(asdict(job)), file=jobs, flush=True)
            return int(codes.readline())

        yield run
        jobs.close()
        server.wait(30)
        codes.close()


WORK = {"bill": bill, "owe": owe, "keep": keep, "start": start, "upload": upload, "design": design}

if __name__ == "__main__":
    for line in sys.stdin:
        print(Job(**json.loads(line)).run(), flush=True)
