"""Uploads over two ingress replicas against an oracle: in whatever order things happen, rows and bytes are those of the
table in `state/tickets.py`, and each refusal is that of the table of errors."""

import asyncio
import shutil
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import delete, select

from contract.access import Scope
from contract.limits import SPARE_BYTES, UPLOAD_S
from deployments.ingress.context import Service
from deployments.ingress.flows.uploads import AT_ONCE
from state import State
from state.blobs.folder import UNFINISHED, FolderBlobs
from state.database.base import Database
from state.database.open import migrate
from state.database.tables import tickets
from state.keys import Secrets
from state.rates import Rates
from state.tickets import AT_WORK_S, ID_PATTERN, SWEEP_AGAIN_S
from tests.api.conftest import Api, Lent, census, client_of
from tests.api.engines import local_engines
from tests.api.uploads import PATH, Body, in_pieces, put, put_raw, transcribe
from tests.catalogs import behaving, chat
from tests.state.books import fault_of, histories
from tests.state.doubles import VirtualTime

T = TypeVar("T")

NOW_S = 1_800_000_000
MOST_TICKETS = 3
DISK_BYTES = 40
"""Room for recordings on the disk of both replicas."""

ORGS, REPLICAS, AGES = st.sampled_from(("acme", "acme", "rival")), st.sampled_from((0, 1)), st.integers(0, 2)

Outcome = tuple[int, str | None]
"""Status, and the code of the error."""
DONE: Outcome = (200, None)
FULL: Outcome = (503, "state_unavailable")

REFUSED: dict[str, Outcome] = {
    "another signature": (403, "invalid_signature"),
    "another type": (415, "unsupported_media_type"),
    "compressed": (415, "unsupported_media_type"),
    "too long": (413, "request_too_large"),
    "too long, in pieces": (413, "request_too_large"),
    "empty": (400, "invalid_request_error"),
    "empty, in pieces": (400, "invalid_request_error"),
}
"""How a PUT can be wrong, in the order in which that is looked at, and what it gets for a ticket that is open."""


class Disk(FolderBlobs):
    """A folder on a disk of DISK_BYTES, which cannot delete the folder `stuck` at the moment."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, lambda _: SPARE_BYTES + DISK_BYTES - self.used())
        self.folder, self.stuck, self.on_their_way = folder, "", 0

    def used(self) -> int:
        return self.on_their_way + sum(map(len, self.files()))

    def files(self, ticket_id: str = "*") -> list[bytes]:
        """Contents of the files of one ticket, or of all."""
        return sorted(path.read_bytes() for path in self.folder.glob(f"uploads/{ticket_id}/*"))

    async def delete_all(self, folder: str) -> None:
        if folder == self.stuck:
            raise OSError
        await super().delete_all(folder)


@dataclass
class Known:
    """A ticket as the oracle knows it: `sound` is its recording, `files` all that lies in its folder."""

    org: str
    size: int
    reply: dict[str, Any]
    expires_at: int
    sweep_at: int
    state: str = "issued"
    sound: bytes | None = None
    files: list[bytes] = field(default_factory=list)

    @property
    def id(self) -> str:
        name: str = self.reply["upload_id"]
        return name

    @property
    def is_open(self) -> bool:
        """Bytes lie under it, or may come."""
        return self.state != "consumed" or self.sound is None

    def keep(self, data: bytes) -> None:
        self.state, self.sound = "uploaded", data
        self.files.append(data)


@dataclass
class Upload:
    """A PUT whose first byte has come."""

    ticket: Known
    body: Body
    answer: asyncio.Task[int]


class Uploads(RuleBasedStateMachine):
    """Two replicas, two organisations, one disk. Most of what happens, happens to the newest tickets."""

    def __init__(self, runner: asyncio.Runner, time: VirtualTime, folder: Path, numbers: Iterator[int]) -> None:
        super().__init__()
        self.runner, self.time, self.disk = runner, time, Disk(folder)
        self.known: list[Known] = []
        self.uploads: list[Upload] = []
        self.orgs = {org: f"{org}-{next(numbers)}" for org in ("acme", "rival")}
        self.run(self.begin())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def begin(self) -> None:
        await self.time.set(NOW_S)
        await self.time.database.run(lambda connection: connection.execute(delete(tickets)) and None)
        lent: Any = Lent(self.time.database)
        clock: Any = self.time
        self.states = [State(lent, Secrets((b"s" * 32,)), Rates(), self.disk, clock) for _ in range(2)]
        services = [Service(CATALOG, ENGINES, state) for state in self.states]
        self.replicas = [Api(service, client_of(service)) for service in services]
        for name in self.orgs.values():
            await self.replicas[0].organisation(name, "enterprise")
        # Two of each organisation: its tickets are for all of its keys.
        self.keys = {
            (org, one): await self.replicas[one].key(*Scope, org=name)
            for org, name in self.orgs.items()
            for one in (0, 1)
        }
        self.org_ids = {org: (await self.replicas[0].caller(self.keys[org, 0])).org_id for org in self.orgs}

    def teardown(self) -> None:
        while self.uploads:
            self.end_a_slow_put(0, -1)
        self.run(self.end())

    async def end(self) -> None:
        for state in self.states:
            await state.close()
        assert [census(replica.service) for replica in self.replicas] == [{}, {}]
        shutil.rmtree(self.disk.folder)

    def newest(self, age: int) -> Known:
        return self.known[-1 - age % len(self.known)]

    @property
    def room(self) -> int:
        return DISK_BYTES - sum(len(data) for ticket in self.known for data in ticket.files) - len(self.uploads)

    @rule(org=ORGS, replica=REPLICAS, size=st.sampled_from((1, 4, 4, 5, 15)))
    def issue(self, org: str, replica: int, size: int) -> None:
        mine = [each for each in self.known if each.org == org and each.is_open]
        stays_free = self.room - sum(each.size for each in self.known if each.sound is None) - size
        expected: Outcome = DONE
        if sum(each.expires_at > self.time.now_s for each in mine) >= MOST_TICKETS:
            expected = (429, "rate_limit_exceeded")
        elif size > stays_free:
            expected = FULL
        elif sum(each.size for each in mine) + size > stays_free:
            expected = (429, "rate_limit_exceeded")
        body = {"mime": "audio/webm", "size": size}
        reply = self.run(self.replicas[replica].send("POST", PATH, self.keys[org, replica], json=body))
        assert outcome(reply) == expected
        if expected == DONE:
            expires_at = self.time.now_s + UPLOAD_S
            ticket = Known(org, size, reply.json(), expires_at, expires_at + AT_WORK_S)
            assert ID_PATTERN.fullmatch(ticket.id)
            assert ticket.id not in [each.id for each in self.known]
            self.known.append(ticket)

    def closed(self, ticket: Known) -> Outcome | None:
        """What a PUT gets for a ticket that takes none any more."""
        if ticket.state == "consumed" or ticket.expires_at <= self.time.now_s:
            return 404, "not_found"
        return (409, "already_uploaded") if ticket.state == "uploaded" else None

    def refused(self, ticket: Known, fault: str = "") -> Outcome | None:
        """What a PUT gets before its body is looked at."""
        if ticket.expires_at <= self.time.now_s or fault == "another signature":
            return REFUSED["another signature"]
        is_read = not fault or fault.endswith("in pieces")
        if is_read and sum(upload.ticket is ticket for upload in self.uploads) == AT_ONCE:
            return self.closed(ticket) or (429, "busy")
        return self.closed(ticket) or REFUSED.get(fault)

    @precondition(lambda self: self.known)
    @rule(age=AGES, replica=REPLICAS, fault=st.sampled_from(list(REFUSED)))
    def put_what_is_wrong(self, age: int, replica: int, fault: str) -> None:
        ticket = self.newest(age)
        expected = self.refused(ticket, fault)
        if expected == REFUSED["too long"] and fault == "too long, in pieces" and ticket.size > self.room:
            expected = FULL
        headers = {"another type": {"content-type": "audio/ogg"}, "compressed": {"content-encoding": "gzip"}}
        body: Any = bytes(ticket.size + 1) if fault.startswith("too long") else b"" if "empty" in fault else b"x"
        if "pieces" in fault:
            body = in_pieces(body[:-1], body[-1:])
        reply = ticket.reply
        if fault == "another signature":
            reply = reply | {"upload_url": reply["upload_url"][:-64] + "0" * 64}
        assert outcome(self.run(put(self.replicas[replica], reply, body, **headers.get(fault, {})))) == expected

    @precondition(lambda self: self.known)
    @rule(age=AGES, replica=REPLICAS, less=st.integers(0, 1), fails=st.booleans())
    def put_what_is_right(self, age: int, replica: int, less: int, fails: bool) -> None:
        ticket = self.newest(age)
        data = b"fail" if fails and ticket.size >= 4 else b"x" * max(1, ticket.size - less)
        expected = self.refused(ticket) or (FULL if len(data) > self.room else None)
        reply = self.run(put(self.replicas[replica], ticket.reply, data))
        assert outcome(reply) == (expected or DONE)
        if expected is None:
            assert reply.json() == {"upload_id": ticket.id, "size": len(data)}
            ticket.keep(data)

    @precondition(lambda self: self.known)
    @rule(age=AGES, replica=REPLICAS)
    def begin_a_slow_put(self, age: int, replica: int) -> None:
        ticket = self.newest(age)
        if 0 < ticket.expires_at - self.time.now_s < UPLOAD_S // 2:
            return  # so many seconds the body may take, by a clock that does not stand
        expected = self.refused(ticket) or (FULL if self.room < 1 else None)
        upload = self.run(begun(self.replicas[replica], ticket))
        if expected is not None:
            assert self.run(answer_of(upload)) == expected[0]
            return
        self.uploads.append(upload)
        self.disk.on_their_way += 1

    @precondition(lambda self: self.uploads)
    @rule(which=AGES, more=st.sampled_from((-2, -1, 0, 2, 4)))
    def end_a_slow_put(self, which: int, more: int) -> None:
        """With so many bytes more; -1: the client leaves in the middle; -2: so does the server's worker."""
        upload = self.uploads.pop(which % len(self.uploads))
        ticket, data = upload.ticket, b"x" + b"y" * more
        expected = self.closed(ticket) or DONE
        if more == -2:
            upload.answer.cancel()
        elif more == -1:
            upload.body.leave()
            expected = REFUSED["empty"]
        else:
            upload.body.end(b"y" * more)
            # Its first byte is on the disk.
            expected = REFUSED["too long"] if len(data) > ticket.size else FULL if more > self.room - 1 else expected
        assert self.run(answer_of(upload)) == (None if more == -2 else expected[0])
        self.disk.on_their_way -= 1
        if expected == DONE and more >= 0:
            ticket.keep(data)

    @precondition(lambda self: self.known)
    @rule(age=AGES, replica=REPLICAS)
    def die_before_a_put_is_recorded(self, age: int, replica: int) -> None:
        ticket = self.newest(age)
        if self.room >= 3:
            self.run(self.disk.put(f"uploads/{ticket.id}/{len(ticket.files)}", b"old"))
            ticket.files.append(b"old")

    @precondition(lambda self: self.known)
    @rule(age=AGES, org=ORGS, replica=REPLICAS, end=st.sampled_from(("well", "well", "bytes are stuck", "death")))
    def transcribe(self, age: int, org: str, replica: int, end: str) -> None:
        """The use of a ticket, after which its bytes are deleted, may fail to be, or lie there because all died."""
        ticket = self.newest(age)
        is_found = ticket.org == org and ticket.state != "consumed" and ticket.expires_at > self.time.now_s
        if end == "death":
            work = self.states[replica].tickets.consume(self.org_ids[org], ticket.id)
            assert self.run(fault_of(work)) == (None if is_found and ticket.sound is not None else "NOT_FOUND")
        else:
            self.disk.stuck = f"uploads/{ticket.id}" if end == "bytes are stuck" else ""
            reply = self.run(transcribe(self.replicas[replica], ticket.reply, self.keys[org, replica]))
            self.check_transcript(ticket, reply, is_found, org)
            if is_found and ticket.sound is not None and end == "well":
                ticket.files.clear()
        if is_found:
            ticket.state, ticket.sweep_at = "consumed", self.time.now_s + AT_WORK_S

    def check_transcript(self, ticket: Known, reply: httpx.Response, is_found: bool, org: str) -> None:
        if is_found and ticket.sound is not None:
            failed = ticket.sound == b"fail"
            assert outcome(reply) == ((502, "upstream_error") if failed else DONE)
            assert failed or reply.json() == {"text": ticket.sound.decode()}
            return
        unknown = self.run(transcribe(self.replicas[0], {"upload_id": UNKNOWN}, self.keys[org, 0]))
        assert outcome(reply) == outcome(unknown) == (404, "not_found")
        said, of_unknown = [
            each.json()["error"]["message"].replace(name, "") for each, name in ((reply, ticket.id), (unknown, UNKNOWN))
        ]
        # Only its owner is told more of a ticket than of one that never was.
        assert (said != of_unknown) == is_found == ("nothing was uploaded" in said)

    @precondition(lambda self: self.known)
    @rule(offset=st.sampled_from((-1, 0, 1)), sweep=st.booleans(), stuck=st.integers(0, 5))
    def pass_time(self, offset: int, sweep: bool, stuck: int) -> None:
        """To the second before, at or after the next change of a ticket by itself; then the other replica sweeps."""
        moments = {at for each in self.known for at in (each.expires_at, each.sweep_at) if at > self.time.now_s}
        self.run(self.time.set(max(self.time.now_s, min(moments, default=self.time.now_s) + offset)))
        if sweep:
            self.sweep(self.known[stuck] if stuck < len(self.known) else None)

    def sweep(self, stuck: Known | None) -> None:
        self.disk.stuck = f"uploads/{stuck.id}" if stuck else ""
        self.run(self.states[1].tickets.sweep())
        for ticket in [each for each in self.known if each.sweep_at <= self.time.now_s]:
            if ticket is stuck:
                ticket.sweep_at = self.time.now_s + SWEEP_AGAIN_S
                continue
            ticket.files.clear()
            # A PUT that came while its address was good may be under way, and leave more.
            ticket.sweep_at = ticket.expires_at + AT_WORK_S
            if ticket.sweep_at <= self.time.now_s:
                self.known.remove(ticket)

    @invariant()
    def rows_and_bytes_are_as_they_should_be(self) -> None:
        rows = self.run(rows_of(self.time.database))
        assert rows == {each.id: (each.state, each.sound is not None) for each in self.known}
        for each in self.known:
            assert self.disk.files(each.id) == sorted(each.files)
        assert len(self.disk.files()) == sum(len(each.files) for each in self.known)
        assert len(list((self.disk.folder / UNFINISHED).iterdir())) == len(self.uploads)


UNKNOWN = f"upl_{'a' * 26}"
CATALOG = behaving(obedient=chat("obedient"))
ENGINES = local_engines(CATALOG)


def outcome(reply: httpx.Response) -> Outcome:
    return reply.status_code, None if reply.is_success else reply.json()["error"]["code"]


async def begun(api: Api, ticket: Known) -> Upload:
    """A PUT that waits for its second byte, or has its answer."""
    body = Body(b"x")
    answer = asyncio.create_task(put_raw(api, ticket.reply, body))
    reached = asyncio.create_task(body.reached.wait())
    await asyncio.wait((answer, reached), return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    return Upload(ticket, body, answer)


async def answer_of(upload: Upload) -> int | None:
    await asyncio.wait((upload.answer,))
    return None if upload.answer.cancelled() else upload.answer.result()


async def rows_of(database: Database) -> dict[str, tuple[str, bool]]:
    rows = await database.run(lambda connection: list(connection.execute(select(tickets))))
    return {row.id: (row.state, row.blob != "") for row in rows}


def test_uploads_follow_their_table(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state.tickets.OPEN_UPLOADS", MOST_TICKETS)
    monkeypatch.setattr("deployments.ingress.routes.files.TICKET_POLL_S", 600)
    numbers = count()
    with asyncio.Runner() as runner:
        runner.run(migrate(database_url))
        time = runner.run(VirtualTime.over(database_url, NOW_S))
        run_state_machine_as_test(
            lambda: Uploads(runner, time, tmp_path / "bytes", numbers),
            settings=histories(5 if "postgresql" in database_url else 20, steps=40),
        )
        runner.run(time.database.close())
