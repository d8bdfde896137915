"""Who works on drafts: designers that fail, processes that end, and one that goes on with what another left."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from contract.errors import BUSY, WARMING_UP
from contract.limits import DRAFT_S
from contract.voice_design.order import DesignOrder, voice_spec
from deployments.ingress import draft_worker
from deployments.ingress.draft_worker import TRIES, DraftWorker
from state.drafts import Drafts
from state.drafts.store import LEASE_S
from tests.api.conftest import Api, refused
from tests.api.designs import (
    COST_MICRO_EUR,
    DEPLOYMENT,
    HELD_MICRO_EUR,
    ORDER,
    Draft,
    arrived,
    designer,
    held,
    listed,
    made,
    order,
    ordered,
    poll,
    stored,
    until_idle,
)
from tests.waiting import until

__all__ = ["held"]


async def test_a_designer_that_dies_once_is_asked_again(api: Api) -> None:
    draft = await made(api, instruct="fail 1")
    assert (draft["status"], len(designer(api).jobs)) == ("ready", 2)
    assert len(await api.usage()) == 1


@pytest.mark.parametrize("instruct", ["fail", "unheard"])
async def test_a_designer_that_always_fails_ends_the_draft_and_nothing_is_billed(api: Api, instruct: str) -> None:
    await api.limit(HELD_MICRO_EUR)
    draft = await made(api, instruct=instruct)
    assert (draft["status"], draft["error"], draft["cost_micro_eur"]) == ("failed", draft_worker.FAILED, 0)
    assert "secret" not in json.dumps(draft)
    assert len(designer(api).jobs) == TRIES
    assert await api.usage() == []
    assert (await order(api)).status_code == 202  # nothing is held any more


async def test_a_busy_or_cold_designer_is_waited_for(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = api.engine(DEPLOYMENT)
    faults, call = [BUSY("busy"), *(WARMING_UP() for _ in range(2 * TRIES))], engine.call

    async def moody(*arguments: Any, **options: Any) -> Any:
        if faults:
            raise faults.pop()
        return await call(*arguments, **options)

    monkeypatch.setattr(engine, "call", moody)
    assert (await made(api))["status"] == "ready"


async def test_a_fault_of_our_own_ends_the_draft(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.state.drafts, "finish", None)
    assert (await made(api))["error"] == draft_worker.FAILED


# --- processes that end -----------------------------------------------------------------------------------------------


def later(api: Api, seconds: float) -> Drafts:
    """The drafts as another process sees them `seconds` later."""
    return seen_by(api, lambda: time.time() + seconds)


def seen_by(api: Api, clock: Callable[[], float]) -> Drafts:
    """The drafts as a process with this clock sees them."""
    return Drafts(api.state.database, api.state.blobs, clock)


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
    """This process ends between two steps, and its lease stays."""
    state: Any = api.state.drafts
    keep, state.release = state.release, _nothing
    await api.service.drafts.close()
    state.release = keep


async def _nothing(*_: object) -> None:
    """What a dead process does."""


async def test_a_draft_whose_process_died_is_taken_up_by_the_next_poll(api: Api, held: Draft) -> None:
    await kill(api)
    designer(api).go.set()
    assert (await poll(api, held))["status"] == "pending"
    assert not api.service.drafts._working  # its lease has not ended yet
    api.state.drafts = later(api, LEASE_S)
    vars(api.service)["drafting"] = DraftWorker(api.service.catalog, api.service.engines, api.state)
    assert (await poll(api, held))["status"] == "pending"
    assert (await arrived(api, held, "ready"))["cost_micro_eur"] == COST_MICRO_EUR
    assert len(await api.usage()) == 1


async def test_a_draft_whose_process_died_is_taken_up_without_polls(api: Api, held: Draft) -> None:
    await kill(api)
    designer(api).go.set()
    left = await api.state.drafts.read(held["id"])
    assert left
    async with another_ingress(api, seen_by(api, lambda: left.work_at - 1)) as early:
        await early.poll()
        assert not early._working
    async with another_ingress(api, seen_by(api, lambda: left.work_at)) as second:
        await second.poll()
        assert (await arrived(api, held, "ready"))["status"] == "ready"


async def test_a_process_that_is_stopped_gives_its_drafts_back_at_once(api: Api, held: Draft) -> None:
    await api.service.drafts.close()
    designer(api).go.set()
    async with another_ingress(api, later(api, 0)) as second:
        await second.poll()
        assert (await arrived(api, held, "ready"))["status"] == "ready"
    assert len(await api.usage()) == 1


async def test_of_many_processes_one_works_on_a_draft(api: Api) -> None:
    designer(api).go.set()
    draft = await api.state.drafts.order(
        *await anybody(api), model="qwen3-tts", line="l", estimate_micro_eur=1, request_id="r"
    )
    many = [DraftWorker(api.service.catalog, api.service.engines, api.state) for _ in range(5)]
    for process in many:
        process.enqueue(draft.id)
        process.enqueue(draft.id)
    await arrived(api, {"id": draft.id}, "ready")
    assert len(designer(api).jobs) == 1
    for process in many:
        await process.close()


async def anybody(api: Api) -> tuple[Any, Any]:
    """A caller and a plan."""
    catalog = api.service.catalog
    plan = voice_spec(DesignOrder(**ORDER), catalog.traits, catalog.voice_design["qwen3-tts"], random.Random(1))
    return await api.caller(), plan


async def test_a_process_that_died_before_the_adoption_leaves_it_to_the_next(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.service.drafts, "_adopt_if_ordered", _nothing)
    draft = await made(api, auto_adopt=True)
    assert draft["status"] == "ready"
    async with another_ingress(api, later(api, 0)) as second:
        await second.poll()
        assert (await arrived(api, draft, "adopted"))["voice"] is not None


async def test_work_that_was_taken_over_is_billed_once(api: Api, held: Draft) -> None:
    # The first process is slow, not dead: its lease ends, and both make a voice.
    async with another_ingress(api, later(api, LEASE_S)) as second:
        await second.poll()
        await until(lambda: designer(api).under_way == 2)
        designer(api).go.set()
        draft = await arrived(api, held, "ready")
        await until(lambda: not second._working and not api.service.drafts._working)
    assert [line.cost_micro_eur for line in await api.usage()] == [COST_MICRO_EUR]
    assert (await api.client.get(draft["sample_url"])).status_code == 200
    assert len(await stored(api)) == 2


@pytest.mark.parametrize(("after_s", "status"), [(DRAFT_S - 2, "pending"), (DRAFT_S, "failed")])
async def test_a_draft_that_is_not_finished_after_20_minutes_has_failed(
    api: Api, held: Draft, after_s: int, status: str
) -> None:
    await kill(api)
    api.state.drafts = later(api, after_s)
    (late,) = await listed(api)
    assert late["status"] == status
    if status == "failed":
        assert "20 minutes" in late["error"]
        assert await poll(api, held) == late
        assert await api.usage() == []


async def test_a_draft_expires_without_polls_and_frees_its_money(api: Api) -> None:
    await api.limit(HELD_MICRO_EUR)
    await ordered(api, instruct="hold")
    await kill(api)
    refused(await order(api), 402, "quota_exceeded")
    await later(api, DRAFT_S).expire()
    assert (await order(api)).status_code == 202


async def test_the_work_goes_on_when_the_client_leaves(api: Api) -> None:
    asking = asyncio.create_task(order(api, instruct="hold"))
    await asyncio.wait({asking})
    designer(api).go.set()
    assert (await arrived(api, asking.result().json(), "ready"))["status"] == "ready"


async def test_a_process_works_on_a_bounded_number_of_drafts(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_worker, "AT_ONCE", 1)
    first, second = await ordered(api, instruct="hold"), await ordered(api)
    assert len(api.service.drafts._working) == 1
    assert (await poll(api, second))["status"] == "pending"
    designer(api).go.set()
    await arrived(api, first, "ready")
    await until_idle(api)
    await api.service.drafts.poll()
    assert (await arrived(api, second, "ready"))["status"] == "ready"
