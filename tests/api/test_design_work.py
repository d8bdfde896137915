"""Work on drafts and its bills: designers that fail, processes that end, drafts that are discarded or sent twice."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from contract.errors import BUSY, WARMING_UP
from contract.limits import DRAFT_S
from deployments.ingress import draft_worker
from deployments.ingress.draft_worker import TRIES, DraftWorker
from state.drafts import Drafts
from state.drafts.store import LEASE_S
from tests.api.conftest import Api, refused
from tests.api.designs import (
    COST_MICRO_EUR,
    DEPLOYMENT,
    DESIGNS,
    HELD_MICRO_EUR,
    Draft,
    adopt,
    arrived,
    designer,
    discard,
    held,
    listed,
    made,
    order,
    ordered,
    poll,
    until_designed,
    until_idle,
)
from tests.api.uploads import stored
from tests.waiting import settled, until

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
    assert (len(designer(api).jobs), await api.usage()) == (TRIES, [])
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


def later(api: Api, seconds: float) -> Drafts:
    """The drafts as another process sees them `seconds` later."""
    return Drafts(api.state.database, api.state.blobs, lambda: time.time() + seconds)


# --- processes that end -----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_a_draft_whose_process_has_ended_is_taken_up_without_polls(
    api: Api, held: Draft, is_stopped: bool
) -> None:
    """One that died keeps its lease; one that was stopped gives it back at once."""
    await (api.service.drafts.close() if is_stopped else kill(api))
    designer(api).go.set()
    assert await later(api, 0).waiting(1) == [held["id"]] * is_stopped
    async with another_ingress(api, later(api, 0 if is_stopped else LEASE_S)) as second:
        await second.poll()
        assert (await arrived(api, held, "ready"))["status"] == "ready"
    assert len(await api.usage()) == 1


async def test_a_process_that_died_before_the_adoption_leaves_it_to_the_next(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.service.drafts, "_adopt_if_ordered", nothing)
    draft = await made(api, auto_adopt=True)
    assert draft["status"] == "ready"
    async with another_ingress(api, later(api, 0)) as second:
        await second.poll()
        assert (await arrived(api, draft, "adopted"))["voice"] is not None


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


# --- bills ------------------------------------------------------------------------------------------------------------


async def test_discarding_bills_the_time_that_the_designer_had_spent(api: Api) -> None:
    await api.limit(HELD_MICRO_EUR)
    draft = await ordered(api, instruct="hold")
    await until_designed(api)
    assert (await api.spend())["held_micro_eur"] == HELD_MICRO_EUR
    reply = (await discard(api, draft)).json()
    (line,) = await api.usage()
    assert line.quantities == {"synthesis_ms": line.quantity}
    assert 0 < reply["cost_micro_eur"] == line.cost_micro_eur == line.quantity < HELD_MICRO_EUR
    me = await api.spend()
    assert (me["spent_micro_eur"], me["held_micro_eur"]) == (line.cost_micro_eur, 0)
    assert (await discard(api, draft)).json()["cost_micro_eur"] == line.cost_micro_eur
    assert len(await api.usage()) == 1


async def test_discarding_what_no_designer_has_begun_or_one_fails_at_costs_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.limit(HELD_MICRO_EUR)
    api.service.drafts.pause_s = 60
    draft = await ordered(api, instruct="fail")

    async def has_failed() -> bool:
        found = await api.state.drafts.read(draft["id"])
        return found is not None and found.failures == 1

    await until(has_failed)
    await discard(api, draft)
    monkeypatch.setattr(draft_worker, "AT_ONCE", 0)
    assert (await discard(api, await ordered(api))).json()["cost_micro_eur"] == 0
    assert (await api.usage(), (await api.spend())["held_micro_eur"]) == ([], 0)


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


async def test_discarding_an_adopted_draft_frees_its_slug_at_once(api: Api, tmp_path: Path) -> None:
    first = await made(api)
    await adopt(api, first, slug="our-anna")
    for _ in range(2):
        reply = await discard(api, first)
        gone = reply.json()
        assert (reply.status_code, gone["status"], gone["sample_url"], gone["voice"]) == (200, "discarded", None, None)
    assert stored(tmp_path) == []
    assert (await api.send("POST", "/v1/audio/speech", json={"input": "x", "voice": "our-anna"})).status_code == 400
    assert (await adopt(api, await made(api), slug="our-anna")).status_code == 200


async def test_one_usage_line_by_synthesis_time(api: Api) -> None:
    await api.limit(2 * HELD_MICRO_EUR)
    draft = await made(api)
    (line,) = await api.usage()
    assert (line.line, line.model) == ("voice-design:qwen3-tts", "qwen3-tts")
    assert (line.quantity, line.unit, line.cost_micro_eur) == (1500, "synthesis_ms", COST_MICRO_EUR)
    assert line.quantities == {"synthesis_ms": 1500}
    me = await api.spend()
    assert (me["spent_micro_eur"], me["held_micro_eur"]) == (COST_MICRO_EUR, 0)
    await adopt(api, draft)
    await discard(api, draft)
    assert len(await api.usage()) == 1


async def test_an_order_sent_twice_is_one_draft(api: Api) -> None:
    headers = {"Idempotency-Key": "k1"}
    first, second = await order(api, headers=headers), await order(api, headers=headers)
    assert (first.status_code, second.status_code, second.json()) == (202, 202, first.json())
    assert second.headers["idempotent-replayed"] == "true"
    await arrived(api, first.json(), "ready")
    assert (len(await listed(api)), len(await api.usage())) == (1, 1)
    assert (await order(api, headers=headers, age_years=35)).status_code == 422


async def test_an_adoption_sent_twice_is_one_voice(api: Api) -> None:
    draft, headers = await made(api), {"Idempotency-Key": "k1"}
    path = f"{DESIGNS}/{draft['id']}/adopt"
    first, second = [await api.send("POST", path, headers=headers) for _ in range(2)]
    assert (first.status_code, second.status_code, second.json()) == (200, 200, first.json())
    refused(await adopt(api, draft), 400, "invalid_request_error")
    assert len(await api.state.voices.of(1)) == 1
