"""Drafts that two processes work on over one database, whose transactions run when a machine says so, if at all.

The store, the workers and what HTTP asks of both are the real ones; the designer says what the machine says.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlalchemy import select

from contract.errors import BUSY, UPSTREAM_ERROR, ApiError
from contract.limits import DRAFT_KEPT_S, DRAFT_S, OWN_VOICES, PENDING_DRAFTS
from contract.speech.engine import Clip
from contract.voice_design.draft import DRAFT_STATES, TRANSITIONS
from contract.voice_design.engine import DesignJob, DesignResult
from deployments.ingress import draft_worker
from deployments.ingress.draft_worker import RENEW_S, DraftWorker
from state.accounts import organisations
from state.billing import audit
from state.billing.ledger import Ledger
from state.database.tables import budgets, drafts, reservations, usage_lines, voices
from state.drafts import Drafts
from state.drafts.draft import draft_of
from state.drafts.store import LEASE_S
from tests.state.books import histories, of_key
from tests.state.doubles import FATES, NUMBERS, Interleaved, Replica
from tests.state.drafts import COST, HOLD, PLAN

BEGIN_S = 1_774_000_000
ORG = 1
MODEL = SimpleNamespace(
    deployment="designer",
    max_attempts=3,
    runtime="kokoro-82m",
    provider="qwen",
    cost_micro_eur=lambda synthesis_ms: synthesis_ms // 100,
)
CATALOG: Any = SimpleNamespace(
    voice_design={"m": MODEL}, sentences={"de": "Guten Tag."}, transcription={}, voices=("M1",)
)
OUTCOMES = {"has died": UPSTREAM_ERROR(), "is busy": BUSY("busy"), "is broken": RuntimeError("secret"), "is done": None}
REACHED = {
    state: {state} | {end for sources, end in TRANSITIONS.values() if state in sources or state == "pending"}
    for state in DRAFT_STATES
}
"""The states in which a draft may be found after it was found in one of them."""


class Shelf:
    """Bytes in memory; a process waits for them as for its database."""

    def __init__(self, process: Process, stored: dict[str, bytes]) -> None:
        self._run, self._stored = process.run, stored

    async def put(self, name: str, data: bytes) -> None:
        await self._run(lambda _: self._stored.update({name: data}))

    async def delete_all(self, folder: str) -> None:
        def delete(_: object) -> None:
            for name in [name for name in self._stored if name.startswith(f"{folder}/")]:
                del self._stored[name]

        await self._run(delete)


@dataclass(eq=False)
class Design:
    """A designer at work, and the lease under which it began."""

    job: DesignJob
    worker: str
    lease_until: int
    outcome: asyncio.Future[DesignResult]


class Process(Replica):
    """An ingress: its store, its worker and, in the place of an engine, itself."""

    def __init__(self, machine: Drafting) -> None:
        super().__init__(machine.calls)
        self.machine = machine
        self.designs: list[Design] = []
        self.clock = lambda: machine.time.now_s
        self.blobs: Any = Shelf(self, machine.stored)
        self.drafts = Drafts(self, self.blobs, self.clock)
        self.worker = DraftWorker(CATALOG, {MODEL.deployment: self}, self)  # type: ignore[dict-item,arg-type]

    async def design(self, job: DesignJob, timings: Any) -> DesignResult:
        timings.was_sent, timings.engine = True, 0.5
        row = self.machine.row_of(job.seed)
        others = [each for process in self.machine.alive for each in process.designs if each.job.seed == job.seed]
        others = [each for each in others if not each.outcome.done() and each.worker != row.worker]
        if any(each.lease_until > self.clock() for each in others):
            self.machine.faults.append("two work on one draft within the lease of the first")
        self.designs.append(Design(job, row.worker, row.work_at, asyncio.get_running_loop().create_future()))
        return await self.designs[-1].outcome


async def verified_design(engine: Process, job: DesignJob, context: Any, _: object) -> DesignResult:
    return await engine.design(job, context.timings)


class Drafting(Interleaved, RuleBasedStateMachine):
    """Voices that one organisation orders."""

    def __init__(self) -> None:
        super().__init__(BEGIN_S)
        organisations.create(self.connection, "acme", "pro", (), 0)
        self.stored: dict[str, bytes] = {}
        self.alive = [Process(self), Process(self)]
        self.ids: list[str] = []
        self.states: dict[str, Any] = {}
        self.ends_at: dict[str, int] = {}
        self.faults: list[str] = []
        self.limit: int | None = None
        self.taken = self.orders = 0

    @initialize(limit=st.sampled_from([None, 10_000, 10_000, 2 * HOLD]), is_calm=st.booleans())
    def begin(self, limit: int | None, is_calm: bool) -> None:
        self.is_calm, self.limit = is_calm, limit
        organisations.set_limit(self.connection, ORG, None, limit)
        for of in (0, 1):
            self.order(of, auto_adopt=of == 1, slug=None, fate="fine")
        self.the_designer(number=-1, outcome="is done", fate="fine")

    def row_of(self, seed: int) -> Any:
        (row,) = [row for row in self.connection.execute(select(drafts)) if draft_of(row).spec.seed == seed]
        return row

    @rule(of=st.integers(0, 1), auto_adopt=st.booleans(), slug=st.sampled_from([None, None, "ours"]), fate=FATES)
    def order(self, of: int, auto_adopt: bool, slug: str | None, fate: str) -> None:
        self.orders += 1
        spec = replace(PLAN, auto_adopt=auto_adopt, slug=slug, seed=self.orders)
        self.spawn(self._order(self.alive[of], spec), fate)

    async def _order(self, process: Process, spec: Any) -> None:
        caller = replace(of_key(), org_limited=self.limit is not None)
        about = {"model": "m", "line": "voice-design:m", "estimate_micro_eur": HOLD, "request_id": "r"}
        process.worker.enqueue((await process.drafts.order(caller, spec, **about)).id)  # type: ignore[arg-type]

    def _of_one(self, number: int, work: Any, fate: str, *states: str) -> None:
        """Does `work` with one of the drafts in these states, or with a new one."""
        self.all_is_right()
        there = [id for id in self.ids if self.states[id] in states]
        if not there:
            self.order(of=number % 2, auto_adopt=False, slug=None, fate="fine")
            self.the_designer(number=-1, outcome="is done", fate="fine")
            self.all_is_right()
        if there := there or self.ids:
            self.spawn(work(there[number % len(there)]), fate)

    @rule(of=st.integers(0, 1), number=NUMBERS, fate=FATES)
    def look(self, of: int, number: int, fate: str) -> None:
        process = self.alive[of]

        async def work(draft_id: str) -> None:
            waits = process.drafts.waits(await process.drafts.find(ORG, draft_id))
            if waits or number < 0:  # it may have waited when somebody asked
                process.worker.enqueue(draft_id)

        self._of_one(number, work, fate, "pending", "ready")

    @rule(number=NUMBERS, outcome=st.sampled_from([*OUTCOMES, "is done", "is done"]), fate=FATES)
    def the_designer(self, number: int, outcome: str, fate: str) -> None:
        at_work = [each for process in self.alive for each in process.designs if not each.outcome.done()]
        if not at_work:
            self.order(of=number % 2, auto_adopt=number % 2 > 0, slug=None, fate="fine")
            return
        self._end(at_work[number % len(at_work)], OUTCOMES[outcome])
        self.quiet(fate)

    def _end(self, design: Design, error: Exception | None) -> None:
        if error:
            design.outcome.set_exception(error)
            return
        clip = Clip(b"\1\0" * 10, 24_000, design.job.text)
        pitch = {"f0_hz": 200.0, "p25_hz": 195.0, "p75_hz": 205.0, "voiced_windows": 90}
        about: Any = {"recipe": "{}", "in_band": True, "attempts_used": 1, "seconds": 1.5} | pitch
        design.outcome.set_result(DesignResult(clip=clip, sample=b"%d" % design.job.seed, **about))

    @rule(of=st.integers(0, 1), number=NUMBERS, slug=st.sampled_from([None, None, "ours"]), fate=FATES)
    def adopt(self, of: int, number: int, slug: str | None, fate: str) -> None:
        process = self.alive[of]

        async def work(draft_id: str) -> None:
            draft = await process.drafts.find(ORG, draft_id)
            await process.drafts.adopt(ORG, draft_id, process.worker.adoption(draft, slug))

        self._of_one(number, work, fate, "ready", *["pending", "adopted"][: number % 3])

    @rule(of=st.integers(0, 1), number=NUMBERS, fate=FATES)
    def discard(self, of: int, number: int, fate: str) -> None:
        process = self.alive[of]

        async def work(draft_id: str) -> None:
            await process.drafts.discard(ORG, draft_id)
            await process.worker.cancel(draft_id)

        self._of_one(number, work, fate, "adopted", "ready", *["pending", "discarded"][: number % 3])

    @rule(of=st.integers(0, 1), work=st.sampled_from(["poll", "expire", "sweep"]), fate=FATES)
    def look_after(self, of: int, work: str, fate: str) -> None:
        process = self.alive[of]
        self.spawn(getattr(process.worker if work == "poll" else process.drafts, work)(), fate)

    @rule(seconds=st.sampled_from([1, 3 * RENEW_S, 3 * RENEW_S, LEASE_S, LEASE_S, DRAFT_S, DRAFT_KEPT_S]), fate=FATES)
    def time_passes(self, seconds: int, fate: str) -> None:
        if seconds == DRAFT_KEPT_S:
            self.heal()  # no store takes so long
        for step_s in 3 * [int(RENEW_S)] if seconds == 3 * RENEW_S else [int(seconds)]:
            self.time.now_s += step_s
            self.loop.now_s += step_s
            self.is_new = True
            self.quiet(fate)
        if seconds == 3 * RENEW_S and fate != "has not begun":  # in less, one that waited need not have come again
            for process in self.alive:
                if process.is_sure and not any(call.process is process for call in self.calls):
                    self._has_renewed(process)

    def _has_renewed(self, process: Process) -> None:
        for design in process.designs:
            row = None if design.outcome.done() else self.row_of(design.job.seed)
            if row and row.worker == design.worker:
                assert row.work_at > self.time.now_s + LEASE_S - 2 * RENEW_S, "a lease is not renewed"

    @rule(number=NUMBERS, fate=FATES, turns=st.integers(0, 3))
    def one_transaction(self, number: int, fate: str, turns: int) -> None:
        super().one_transaction(number, fate, turns)

    @rule()
    def heal(self) -> None:
        super().heal()

    @rule(of=st.integers(0, 1), still_run=st.integers(0, 2), is_stopped=st.booleans())
    def a_process_ends(self, of: int, still_run: int, is_stopped: bool) -> None:
        before, self.alive[of] = self.alive[of], Process(self)
        if is_stopped:
            self.heal()  # it has no requests any more
        if is_stopped and self.spawn(before.worker.close()).done() and before.is_sure:
            workers = {design.worker for design in before.designs}
            leased = select(drafts.c.id).where(drafts.c.worker.in_(workers), drafts.c.work_at > self.time.now_s)
            assert not self.connection.execute(leased).all(), "a process was stopped and kept a lease"
        self.kill(before, still_run)

    @invariant()
    def all_is_right(self) -> None:
        assert self.faults == []
        if not self.is_new:
            return
        self.is_new = False
        assert audit.faults(self.connection) == []
        found = {row.id: row for row in self.connection.execute(select(drafts))}
        lines = dict(self._pairs(usage_lines.c.reservation_id, usage_lines.c.cost_micro_eur))
        held = dict(self._pairs(reservations.c.id, reservations.c.held_micro_eur, reservations.c.state == "held"))
        self.ids += [id for id in found if id not in self.states]
        for id, state in self.states.items():
            assert id not in found or found[id].state in REACHED[state], "the table of states says otherwise"
            assert id in found or self.ends_at[id] <= self.time.now_s, "a draft is gone before its time"
        self.states |= {id: row.state for id, row in found.items()}
        self.ends_at |= {id: row.ends_at for id, row in found.items()}
        self.ids = [id for id in self.ids if id in found]
        for id, row in found.items():
            self._is_right(row, lines.get(id), held.get(id))
        slugs = [row.voice_slug for row in found.values() if row.voice_slug]
        assert sorted(slugs) == sorted(self.connection.execute(select(voices.c.slug)).scalars())
        assert len(slugs) == len(set(slugs)) <= OWN_VOICES
        recent = [row for row in found.values() if row.created_at > self.time.now_s - DRAFT_S]
        assert sum(row.state == "pending" for row in recent) <= PENDING_DRAFTS
        taken = sum(lines.values()) + sum(held.values())
        assert self.limit is None or taken <= max(self.limit, self.taken)
        self.taken = taken

    def _pairs(self, *of: Any) -> list[Any]:
        return [tuple(row) for row in self.connection.execute(select(*of[:2]).where(*of[2:]))]

    def _is_right(self, row: Any, billed: int | None, held: int | None) -> None:
        """Billed once it is made, or discarded amid work; held for while it is pending; its bytes are there."""
        assert row.cost_micro_eur == (billed or 0)
        assert billed is None or row.state not in ("pending", "failed")
        assert held is None or row.state in ("pending", "discarded")
        assert (row.voice_slug is not None) == (row.state == "adopted")
        if row.state in ("ready", "adopted"):
            assert billed == COST
            made, is_due = draft_of(row).designed, draft_of(row).spec.auto_adopt and row.work_at is None
            assert row.state == "adopted" or row.error or not is_due, "it is never adopted"
            assert made
            assert self.stored[made.sample_blob] == b"%d" % draft_of(row).spec.seed
            assert self.stored[made.clip_blob]

    # --- and in the end

    def _until(self, query: Any, *work: str) -> None:
        """Until no draft is like that: `work` is done, designers design, and time passes."""
        for _ in range(300):
            for process in self.alive:
                for name in work:
                    self.spawn(getattr(process.worker if name == "poll" else process.drafts, name)())
                for design in process.designs:
                    if not design.outcome.done():
                        self._end(design, None)
            self.quiet()
            if not self.connection.execute(query).all():
                return
            self.time.now_s += LEASE_S
            self.loop.now_s += LEASE_S
        raise AssertionError("something waits for ever")

    def teardown(self) -> None:
        try:
            self.everything_ends()
        finally:
            self.close()

    def everything_ends(self) -> None:
        """Every draft is ready or has ended, and in the end nothing is left but voices."""
        self.limit = None
        organisations.set_limit(self.connection, ORG, None, None)
        self.heal()
        self._until(select(drafts.c.id).where(drafts.c.work_at.is_not(None)), "poll", "expire")
        assert not self.connection.execute(select(drafts.c.id).where(drafts.c.state == "pending")).all()
        self.is_new = True
        self.all_is_right()
        errors = [task.exception() for task in self.tasks if task.done() and not task.cancelled()]
        assert all(error is None or isinstance(error, ApiError) for error in errors), errors
        self.time.now_s += DRAFT_KEPT_S
        self._until(select(drafts.c.id).where(drafts.c.state != "adopted"), "sweep")
        self.is_new = True
        self.all_is_right()
        assert {name.split("/")[1] for name in self.stored} == set(self.ids)
        self.spawn(Ledger(Process(self)).reap())
        assert set(self.connection.execute(select(budgets.c.held_micro_eur)).scalars()) == {0}


def test_no_history_of_two_processes_loses_a_draft_bills_it_twice_or_leaves_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(draft_worker, "verified_design", verified_design)
    run_state_machine_as_test(Drafting, settings=histories(40, steps=30))  # type: ignore[no-untyped-call]
