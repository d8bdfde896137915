"""What orders of voices, drafts and adoptions are refused, and with which code."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contract.access import Scope
from contract.limits import OWN_VOICES, PENDING_DRAFTS
from tests.api.conftest import Api, refused
from tests.api.designs import (
    DEPLOYMENT,
    DESIGNS,
    HELD_MICRO_EUR,
    OPTIONS,
    adopt,
    discard,
    listed,
    made,
    order,
    ordered,
    poll,
)


@pytest.mark.parametrize("slug", ["", "../x", "x" * 41])
async def test_400_a_malformed_slug_at_order_and_adoption(api: Api, slug: str) -> None:
    refused(await order(api, slug=slug), 400, "invalid_request_error", "slug")
    draft = await made(api)
    refused(await adopt(api, draft, slug=slug), 400, "invalid_request_error", "slug")
    assert (await poll(api, draft))["status"] == "ready"


@pytest.mark.parametrize("fields", [{"age_years": 91}, {"language": "nl"}, {"target_hz": 401}, {"timber": "deep"}])
async def test_400_what_an_order_may_not_hold_leaves_no_draft(api: Api, fields: dict[str, Any]) -> None:
    """All bounds: tests/contract/test_voice_design.py."""
    refused(await order(api, **fields), 400, "invalid_request_error", *fields)
    assert await listed(api) == []


async def test_402_quota_exceeded_of_the_organisation_and_of_the_user(api: Api) -> None:
    key = await api.key(*Scope, user="eve")
    await api.limit(HELD_MICRO_EUR - 1, user="eve")
    refused(await order(api, key), 402, "quota_exceeded", says="`eve`")
    await api.limit(HELD_MICRO_EUR, user="eve")
    await api.limit(HELD_MICRO_EUR - 1)
    refused(await order(api, key), 402, "quota_exceeded", says="`acme`")
    await api.limit(HELD_MICRO_EUR)
    assert (await order(api, key)).status_code == 202


async def test_403_a_plan_without_voices(api: Api) -> None:
    await api.organisation("small", "free")
    key = await api.key(*Scope, org="small")
    refused(await order(api, key), 403, "voice_not_in_plan")
    refused(await api.send("POST", f"{DESIGNS}/suggest", key, json={"text": "deep"}), 403, "voice_not_in_plan")
    # What is there can be seen.
    assert await listed(api, key) == []
    assert (await api.send("GET", OPTIONS, key)).status_code == 200


async def test_403_an_organisation_whose_plan_has_become_smaller_may_look_and_discard(api: Api) -> None:
    draft = await made(api)
    await api.change(plan="free")
    key = await api.key(*Scope)
    refused(await adopt(api, draft, key), 403, "voice_not_in_plan")
    assert (await poll(api, draft, key))["status"] == "ready"
    assert (await discard(api, draft, key)).status_code == 200


async def test_409_a_slug_that_is_taken(api: Api) -> None:
    await adopt(api, await made(api), slug="our-anna")
    second = await made(api)
    for slug in ("our-anna", "m1", "de-thorsten", "default-de"):
        for reply in (await order(api, slug=slug), await adopt(api, second, slug=slug)):
            refused(reply, 409, "voice_limit_reached", "slug")
            assert reply.headers["x-should-retry"] == "false"
    assert (await poll(api, second))["status"] == "ready"


async def test_409_the_eleventh_voice(api: Api) -> None:
    for number in range(OWN_VOICES):
        last = await made(api)
        assert (await adopt(api, last, slug=f"voice-{number}")).status_code == 200
    one_more = await made(api)
    refused(await adopt(api, one_more), 409, "voice_limit_reached", says="10")
    await discard(api, last)
    assert (await adopt(api, one_more)).status_code == 200


async def test_409_the_fourth_draft_at_a_time(api: Api) -> None:
    drafts = [await ordered(api, instruct="hold") for _ in range(PENDING_DRAFTS)]
    reply = await order(api)
    refused(reply, 409, "too_many_pending")
    assert reply.headers["x-should-retry"] == "false"
    assert (await order(api, await api.stranger())).status_code == 202
    await discard(api, drafts[0])
    assert (await order(api)).status_code == 202


async def test_409_of_many_orders_at_once_three_are_taken(api: Api) -> None:
    replies = await asyncio.gather(*(order(api, instruct="hold") for _ in range(20)))
    assert sorted(reply.status_code for reply in replies) == [202] * PENDING_DRAFTS + [409] * 17


async def test_501_where_no_designer_is_set_up(api: Api) -> None:
    designer = api.service.catalog.voice_design["qwen3-tts"]
    bare = api.with_models(voice_design={designer.id: designer.model_copy(update={"serving": None})})
    options = (await bare.send("GET", OPTIONS)).json()
    assert (options["available"], options["limits"]["concurrent_drafts"]) == (False, PENDING_DRAFTS)
    reply = await order(bare)
    refused(reply, 501, "not_implemented")
    assert reply.headers["x-should-retry"] == "false"
    refused(await order(bare, timbre="unknown"), 400, "invalid_request_error", "timbre")


async def test_501_where_the_organisation_may_not_use_the_designer(api: Api) -> None:
    assert (await api.send("GET", OPTIONS)).json()["available"] is True
    await api.change(models=frozenset({"lengths"}))
    key = await api.key(*Scope)
    assert (await api.send("GET", OPTIONS, key)).json()["available"] is False
    refused(await order(api, key), 501, "not_implemented")


async def test_502_a_designer_whose_start_has_failed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = api.engine(DEPLOYMENT)
    monkeypatch.setattr(engine, "is_failing", lambda: True)
    refused(await order(api), 502, "upstream_error")
    assert engine.warmed == 1
    assert await listed(api) == []


@pytest.mark.parametrize("event", ["GET", "DELETE", "adopt"])
async def test_404_foreign_ids_and_unknown_ones_in_the_same_words(api: Api, event: str) -> None:
    stranger = await api.stranger()
    draft = await made(api)

    async def ask(draft_id: str) -> tuple[int, str]:
        method, end = ("POST", "/adopt") if event == "adopt" else (event, "")
        reply = await api.send(method, f"{DESIGNS}/{draft_id}{end}", stranger)
        return reply.status_code, reply.text.replace(draft_id, "ID")

    assert await ask(draft["id"]) == await ask(f"vd_{'a' * 26}")
    assert (await ask(f"vd_{'a' * 26}"))[0] == 404
    for name in ("x", "VD_" + "A" * 26, "%00", "vd_" + "%C3%A4" * 26, "x" * 5000):
        assert (await ask(name))[0] == 404
    assert (await poll(api, draft))["status"] == "ready"
