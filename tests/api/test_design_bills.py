"""Drafts that are discarded, repeated, or sent many times at once: what they cost, and that each is there once."""

from __future__ import annotations

import asyncio
import math

import pytest

from contract.limits import DRAFT_S, PENDING_DRAFTS
from deployments.ingress import draft_worker
from tests.api.conftest import Api, refused
from tests.api.designs import (
    COST_MICRO_EUR,
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
    stored,
    until_designed,
    until_idle,
)
from tests.state.books import pass_time
from tests.waiting import until

__all__ = ["held"]


async def test_discarding_ends_the_work_and_frees_the_place(api: Api, held: Draft) -> None:
    await discard(api, held)
    await until(lambda: designer(api).under_way == 0)
    assert (await poll(api, held))["status"] == "discarded"
    for _ in range(PENDING_DRAFTS):
        await ordered(api, instruct="hold")


async def test_discarding_bills_the_time_that_the_designer_had_spent(api: Api) -> None:
    await api.limit(HELD_MICRO_EUR)
    draft = await ordered(api, instruct="hold")
    await until_designed(api)
    reply = (await discard(api, draft)).json()
    (line,) = await api.usage()
    assert line.quantities == {"synthesis_ms": line.quantity}
    assert 0 < reply["cost_micro_eur"] == line.cost_micro_eur == line.quantity < HELD_MICRO_EUR
    me = await api.spend()
    assert (me["spent_micro_eur"], me["held_micro_eur"]) == (line.cost_micro_eur, 0)
    assert (await discard(api, draft)).json()["cost_micro_eur"] == line.cost_micro_eur
    assert len(await api.usage()) == 1


async def test_discarding_what_no_designer_has_begun_costs_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_worker, "AT_ONCE", 0)
    await api.limit(HELD_MICRO_EUR)
    assert (await discard(api, await ordered(api))).json()["cost_micro_eur"] == 0
    me = await api.spend()
    assert (await api.usage(), me["held_micro_eur"]) == ([], 0)


async def test_discarding_what_a_designer_fails_at_costs_nothing(api: Api) -> None:
    api.service.drafts.pause_s = 60
    draft = await ordered(api, instruct="fail")

    async def has_failed() -> bool:
        found = await api.state.drafts.read(draft["id"])
        return found is not None and found.failures == 1

    await until(has_failed)
    await discard(api, draft)
    assert await api.usage() == []


async def test_what_a_designer_made_of_a_discarded_draft_is_thrown_away_and_billed(api: Api, held: Draft) -> None:
    # Discarded by another process, whose word this one has not heard yet.
    await api.state.drafts.discard(1, held["id"])
    designer(api).go.set()
    await until_idle(api)
    (line,) = await api.usage()
    after = await poll(api, held)
    assert (after["status"], after["cost_micro_eur"]) == ("discarded", line.cost_micro_eur)
    assert (await stored(api), line.unit) == ([], "synthesis_ms")


async def test_discarding_an_adopted_draft_frees_its_slug_at_once(api: Api) -> None:
    first = await made(api)
    await adopt(api, first, slug="our-anna")
    await discard(api, first)
    assert (await api.send("POST", "/v1/audio/speech", json={"input": "x", "voice": "our-anna"})).status_code == 400
    assert (await adopt(api, await made(api), slug="our-anna")).status_code == 200


# --- money and repetition ---------------------------------------------------------------------------------------------


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


async def test_money_is_held_while_a_draft_is_made(api: Api) -> None:
    await api.limit(HELD_MICRO_EUR)
    draft = await ordered(api, instruct="hold")
    assert (await api.spend())["held_micro_eur"] == HELD_MICRO_EUR
    cost = (await discard(api, draft)).json()["cost_micro_eur"]
    me = await api.spend()
    assert (me["spent_micro_eur"], me["held_micro_eur"]) == (cost, 0)


async def test_money_of_a_draft_outlives_the_lease_of_a_request(api: Api) -> None:
    await api.limit(HELD_MICRO_EUR)
    await ordered(api, instruct="hold")
    await pass_time(api.state.database, DRAFT_S)
    assert await api.state.ledger.reap() == 0


async def test_an_order_sent_twice_is_one_draft(api: Api) -> None:
    headers = {"Idempotency-Key": "k1"}
    first, second = await order(api, headers=headers), await order(api, headers=headers)
    assert (first.status_code, second.status_code) == (202, 202)
    assert second.json() == first.json()
    assert second.headers["idempotent-replayed"] == "true"
    await arrived(api, first.json(), "ready")
    assert len(await listed(api)) == 1
    assert len(await api.usage()) == 1
    assert (await order(api, headers=headers, age_years=35)).status_code == 422


async def test_orders_at_once_with_one_key_are_one_draft(api: Api) -> None:
    replies = await asyncio.gather(*(order(api, headers={"Idempotency-Key": "k1"}) for _ in range(20)))
    assert {reply.status_code for reply in replies} <= {202, 409}
    assert len({reply.json()["id"] for reply in replies if reply.status_code == 202}) == 1
    assert len(await listed(api)) == 1


async def test_an_adoption_sent_twice_is_one_voice(api: Api) -> None:
    draft, headers = await made(api), {"Idempotency-Key": "k1"}
    path = f"{DESIGNS}/{draft['id']}/adopt"
    first, second = [await api.send("POST", path, headers=headers) for _ in range(2)]
    assert (first.status_code, second.status_code) == (200, 200)
    assert second.json() == first.json()
    refused(await adopt(api, draft), 400, "invalid_request_error")
    assert len(await api.state.voices.of(1)) == 1


async def test_of_two_adoptions_at_once_one_wins(api: Api) -> None:
    draft = await made(api)
    replies = await asyncio.gather(*(adopt(api, draft, slug=f"voice-{number}") for number in range(10)))
    assert sorted(reply.status_code for reply in replies) == [200, *[400] * 9]
    (own,) = await api.state.voices.of(1)
    assert (await poll(api, draft))["voice_slug"] == own.voice.slug


async def test_adoption_against_discarding_leaves_all_or_nothing(api: Api) -> None:
    statuses = []
    for head_start in (-1, 0, 20, 100, 400, math.inf):
        draft = await made(api)
        work = [adopt(api, draft, slug=f"voice-{len(statuses)}"), discard(api, draft)]
        first, second = work[:: -1 if head_start < 0 else 1]
        one = asyncio.ensure_future(first)
        while head_start > 0 and not one.done():
            await asyncio.sleep(0)
            head_start -= 1
        replies = [*await asyncio.gather(one, second)][:: -1 if head_start < 0 else 1]
        statuses.append(replies[0].status_code)
        assert replies[1].status_code == 200
        assert (await poll(api, draft))["status"] == "discarded"
        assert await api.state.voices.of(1) == []
    assert await stored(api) == []
    assert set(statuses) == {200, 400}, "each was first now and then"
    assert (statuses[0], statuses[-1]) == (400, 200)
