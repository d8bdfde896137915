"""Drafts of processes that end, that are slow, or that have enough."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from contract.limits import DRAFT_S
from deployments.ingress import draft_worker
from deployments.ingress.draft_worker import DraftWorker
from state.drafts import Drafts
from state.drafts.store import LEASE_S
from tests.api.conftest import Api
from tests.api.designs import (
    COST_MICRO_EUR,
    HELD_MICRO_EUR,
    Draft,
    arrived,
    designer,
    held,
    listed,
    order,
    ordered,
    poll,
    until_designed,
    until_idle,
)
from tests.api.uploads import stored
from tests.state.doubles import ForgetfulDatabase
from tests.waiting import settled, until

__all__ = ["held"]


def later(api: Api, seconds: float) -> Drafts:
    """The drafts as another process sees them `seconds` later."""
    return Drafts(api.state.database, api.state.blobs, lambda: time.time() + seconds)


@asynccontextmanager
async def another_ingress(api: Api, drafts: Drafts) -> AsyncIterator[DraftWorker]:
    """A second process over the same state, which sees `drafts`."""
    view: Any = dataclasses.make_dataclass("View", ["drafts", "blobs", "clock"])(
        drafts, api.state.blobs, api.state.clock
    )
    second = DraftWorker(api.service.catalog, api.service.engines, view)
    yield second
    await second.close()


async def kill(api: Api) -> None:
    """Ends this process between two steps; its lease stays."""
    state: Any = api.state.drafts
    keep, state.release = state.release, nothing
    await api.service.drafts.close()
    state.release = keep


async def nothing(*_: object) -> None:
    """Stands for the work of a dead process."""


async def test_a_draft_whose_process_died_is_taken_up_by_the_next_poll(api: Api, held: Draft) -> None:
    await kill(api)
    designer(api).go.set()
    for drafts in (later(api, 0), later(api, LEASE_S)):
        api.state.drafts = drafts
        vars(api.service)["drafting"] = DraftWorker(api.service.catalog, api.service.engines, api.state)
        assert (await poll(api, held))["status"] == "pending"
    assert (await arrived(api, held, "ready"))["cost_micro_eur"] == COST_MICRO_EUR
    assert len(await api.usage()) == 1


async def test_a_draft_whose_process_died_is_taken_up_without_polls(api: Api, held: Draft) -> None:
    """One that was stopped gives it back at once: tests/state/test_draft_processes.py."""
    await kill(api)
    designer(api).go.set()
    assert await later(api, 0).waiting(1) == []
    async with another_ingress(api, later(api, LEASE_S)) as second:
        await second.poll()
        assert (await arrived(api, held, "ready"))["status"] == "ready"
    assert len(await api.usage()) == 1


async def test_work_that_was_taken_over_is_billed_once(api: Api, held: Draft, tmp_path: Path) -> None:
    # The first process is slow, not dead: its lease ends, and both make a voice.
    async with another_ingress(api, later(api, LEASE_S)) as second:
        await second.poll()
        await until_designed(api, 2)
        designer(api).go.set()
        draft = await arrived(api, held, "ready")
        await until_idle(second, api.service.drafts)
    assert [line.cost_micro_eur for line in await api.usage()] == [COST_MICRO_EUR]
    assert (await api.client.get(draft["sample_url"])).status_code == 200
    assert len(stored(tmp_path)) == 2


async def test_a_draft_keeps_its_bytes_where_the_database_loses_the_answer_that_it_is_ready(
    api: Api, held: Draft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.state.drafts, "_database", ForgetfulDatabase(api.state.database, "finish"))
    api.service.drafts.pause_s = 0.01
    designer(api).go.set()
    draft = await arrived(api, held, "ready")
    await until_idle(api.service.drafts)
    assert (await api.client.get(draft["sample_url"])).status_code == 200
    assert (len(stored(tmp_path)), len(await api.usage())) == (2, 1)


@pytest.mark.parametrize("lost", [("order",), ("order", "order"), ("claim",)])
async def test_an_order_that_is_repeated_after_a_lost_answer_is_one_draft_and_one_bill(
    api: Api, lost: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.limit(10 * HELD_MICRO_EUR)
    for store in (api.state.drafts, api.state.idempotency):
        monkeypatch.setattr(store, "_database", ForgetfulDatabase(api.state.database, *lost))
    statuses = []

    async def is_ordered() -> bool:
        await api.state.idempotency.renew()  # as every 30 s
        statuses.append((await order(api, headers={"Idempotency-Key": "k1"})).status_code)
        return statuses[-1] == 202

    await until(is_ordered)
    await order(api, headers={"Idempotency-Key": "k1"})
    assert statuses[0] == (202 if lost == ("order",) else 503)
    drafts = [draft for draft in await listed(api) if draft["status"] != "discarded"]
    await arrived(api, *drafts, "ready")
    await until_idle(api.service.drafts)
    assert (len(await api.usage()), (await api.spend())["held_micro_eur"]) == (1, 0)


async def test_a_draft_that_is_not_finished_after_20_minutes_has_failed_and_frees_its_money(
    api: Api, held: Draft
) -> None:
    await api.limit(HELD_MICRO_EUR)
    await kill(api)
    for after_s, status in ((DRAFT_S - 2, "pending"), (DRAFT_S, "failed")):
        api.state.drafts = later(api, after_s)
        (late,) = await listed(api)
        assert late["status"] == status
    assert "20 minutes" in late["error"]
    assert await poll(api, held) == late
    assert (await api.usage(), (await order(api)).status_code) == ([], 202)


async def test_a_process_works_on_a_bounded_number_of_drafts(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_worker, "AT_ONCE", 1)
    first, second = await ordered(api, instruct="hold"), await ordered(api)
    await until_designed(api)
    assert (await poll(api, second))["status"] == "pending"
    await settled()
    assert len(designer(api).jobs) == 1
    designer(api).go.set()
    await arrived(api, first, "ready")
    await until_idle(api.service.drafts)
    await api.service.drafts.poll()
    assert (await arrived(api, second, "ready"))["status"] == "ready"


async def test_what_a_designer_made_of_a_discarded_draft_is_thrown_away_and_billed(
    api: Api, held: Draft, tmp_path: Path
) -> None:
    # Discarded by another process, which this one does not know yet.
    await api.state.drafts.discard(1, held["id"])
    designer(api).go.set()
    await until_idle(api.service.drafts)
    (line,) = await api.usage()
    after = await poll(api, held)
    assert (after["status"], after["cost_micro_eur"]) == ("discarded", line.cost_micro_eur)
    assert (stored(tmp_path), line.unit) == ([], "synthesis_ms")
