"""Drafts of voices over the real app: ordered, polled, heard, adopted, refused; and the work on them and its bills.

What becomes of a draft in each state, and among several processes: tests/contract/test_voice_design.py,
tests/state/test_drafts.py, tests/state/test_draft_processes.py.
"""

import json
import time
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from autoscaling.engine import owner_name
from contract.access import Scope
from contract.errors import BUSY, STATE_UNAVAILABLE, WARMING_UP
from contract.limits import PENDING_DRAFTS
from deployments.ingress import draft_worker
from deployments.ingress.draft_worker import DraftWorker
from state.drafts import Drafts
from state.drafts.store import LEASE_S
from tests.api.conftest import Api, refused
from tests.api.designs import (
    COST_MICRO_EUR,
    DEPLOYMENT,
    DESIGNS,
    HELD_MICRO_EUR,
    OPTIONS,
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
from tests.state.doubles import ForgetfulDatabase
from tests.waiting import settled, until

__all__ = ["held"]


async def test_202_a_draft_is_pending_and_empty(api: Api, held: Draft) -> None:
    assert held["id"].startswith("vd_")
    assert (held["object"], held["status"], held["scope"]) == ("voice_design", "pending", "org")
    assert (held["gender"], held["age_years"], held["language"], held["auto_adopt"]) == ("f", 34, "en", False)
    assert held["measurements"] == {"f0_hz": None, "in_band": None, "attempts_used": None, "seconds": None}
    assert (held["sample_url"], held["voice_slug"], held["voice"], held["error"]) == (None, None, None, None)
    assert (held["cost_micro_eur"], held["instruct"]) == (0, "hold")
    assert "duration_ms" not in held
    assert await poll(api, held) == held


async def test_a_poll_of_a_finished_draft_is_ready_with_all_that_was_measured(api: Api) -> None:
    draft = await made(api, target_hz=200)
    assert (draft["status"], draft["target_hz"], draft["error"]) == ("ready", 200, None)
    assert draft["measurements"] == {
        "f0_hz": 200.0, "in_band": True, "attempts_used": 1, "seconds": 2.0, "p25_hz": 195.0, "p75_hz": 205.0,
        "voiced_windows": 90
    }  # fmt: skip
    low, high = draft["band_hz"]
    assert low < 200 < high
    assert (draft["duration_ms"], draft["cost_micro_eur"]) == (1500, COST_MICRO_EUR)
    assert (draft["voice_slug"], draft["voice"]) == (None, None)
    sample = await api.client.get(draft["sample_url"])
    assert (sample.status_code, sample.headers["content-type"]) == (200, "audio/mpeg")
    assert "sample" in sample.json()


async def test_the_designer_gets_the_plan_the_sample_sentence_and_the_organisation(api: Api) -> None:
    draft = await made(api, language="de", target_hz=180)
    (job,) = designer(api).jobs
    assert job.text == api.service.catalog.sentences["de"]
    assert (job.gender, job.age_years, job.language, job.target_hz) == ("f", 34, "de", 180)
    assert (job.instruct, job.traits, list(job.band_hz)) == (draft["instruct"], draft["traits"], draft["band_hz"])
    assert job.attempts == api.service.catalog.voice_design["qwen3-tts"].max_attempts
    assert api.engine(DEPLOYMENT).callers == [owner_name((await api.caller()).org_id)]


async def test_a_draft_out_of_band_is_ready_and_says_so(api: Api) -> None:
    for target_hz in (60, 400):
        draft = await made(api, instruct="far", target_hz=target_hz)
        assert (draft["status"], draft["measurements"]["in_band"]) == ("ready", False)
        assert draft["measurements"]["attempts_used"] > 1
        assert (await adopt(api, draft)).status_code == 200


async def test_an_adopted_draft_is_a_voice_at_once(api: Api) -> None:
    draft = await made(api)
    reply = await adopt(api, draft, slug="our-anna", label="Anna")
    voice = reply.json()
    assert reply.status_code == 200
    assert (voice["slug"], voice["label"], voice["scope"], voice["origin"]) == ("our-anna", "Anna", "org", "designed")
    assert (voice["gender"], voice["age_group"], voice["primary_language"]) == ("f", "30-35", "en")
    assert (voice["provider"], voice["model"], voice["description"]) == ("qwen", "qwen3-tts", draft["instruct"])
    listed = (await api.send("GET", "/v1/audio/voices")).json()["data"][-1]
    assert {**listed, "sample_url": ""} == {**voice, "sample_url": ""}
    after = await poll(api, draft)
    assert (after["status"], after["voice_slug"], after["voice"]["slug"]) == ("adopted", "our-anna", "our-anna")
    assert (await api.client.get(voice["sample_url"])).json() == (await api.client.get(draft["sample_url"])).json()


async def test_drafts_are_listed_newest_first_and_for_their_organisation_only(api: Api) -> None:
    stranger = await api.stranger()
    ids = [(await made(api))["id"] for _ in range(3)]
    body = (await api.send("GET", DESIGNS)).json()
    assert body["object"] == "list"
    assert {draft["id"] for draft in body["data"]} == set(ids)
    moments = [draft["created_at"] for draft in body["data"]]
    assert moments == sorted(moments, reverse=True)
    assert await listed(api, stranger) == []


async def test_auto_adoption_that_is_refused_leaves_the_draft_ready_and_says_why(api: Api, held: Draft) -> None:
    mine = await ordered(api, auto_adopt=True, slug="our-anna", instruct="hold")
    await adopt(api, await made(api), slug="our-anna")
    designer(api).go.set()
    while not (draft := await poll(api, mine))["error"]:
        pass
    assert (draft["status"], draft["voice"]) == ("ready", None)
    assert "`our-anna` is in use" in draft["error"]
    assert (await adopt(api, draft, slug="our-bea")).status_code == 200
    assert (await poll(api, draft))["error"] is None


async def test_a_voice_without_a_slug_gets_one_of_its_label(api: Api) -> None:
    for label, slug in (("Jürgen, groß!", "jurgen-gross"), ("Jürgen groß", "jurgen-gross-2"), ("Анна", "voice-f-34")):
        assert (await adopt(api, await made(api, label=label))).json()["slug"] == slug


async def test_suggestions_design_nothing_and_can_be_ordered(api: Api) -> None:
    reply = await api.send("POST", f"{DESIGNS}/suggest", json={"text": "eine tiefe, ruhige Stimme, ein alter Mann"})
    suggested = reply.json()
    assert (reply.status_code, suggested["gender"]) == (200, "m")
    assert (designer(api).jobs, await api.usage()) == ([], [])
    names = ("gender", "age_years", "language", "timbre", "character", "tempo", "use_case")
    assert (await order(api, **{name: suggested[name] for name in names})).status_code == 202


async def test_404_ids_of_others_and_unknown_ones_in_the_same_words(api: Api) -> None:
    stranger, draft, unknown = await api.stranger(), await made(api), f"vd_{'a' * 26}"
    for method, end in (("GET", ""), ("DELETE", ""), ("POST", "/adopt")):
        words = set()
        for name in (draft["id"], unknown, "x", "VD_" + "A" * 26, "%00", "vd_" + "%C3%A4" * 26, "x" * 5000):
            reply = await api.send(method, f"{DESIGNS}/{name}{end}", stranger)
            assert reply.status_code == 404
            words |= {reply.text.replace(name, "ID")} if name in (draft["id"], unknown) else set()
        assert len(words) == 1
    assert (await poll(api, draft))["status"] == "ready"


async def test_409_a_slug_that_is_taken(api: Api) -> None:
    await adopt(api, await made(api), slug="our-anna")
    second = await made(api)
    for slug in ("our-anna", "m1", "de-thorsten", "default-de"):
        for reply in (await order(api, slug=slug), await adopt(api, second, slug=slug)):
            refused(reply, 409, "voice_limit_reached", "slug")
            assert reply.headers["x-should-retry"] == "false"
    assert (await poll(api, second))["status"] == "ready"


async def test_501_where_no_designer_is_set_up_or_the_organisation_may_not_use_it(api: Api) -> None:
    assert (await api.send("GET", OPTIONS, await api.key())).json()["available"] is True
    designer = api.service.catalog.voice_design["qwen3-tts"]
    bare = api.with_models(voice_design={designer.id: designer.model_copy(update={"serving": None})})
    refused(await order(bare, timbre="unknown"), 400, "invalid_request_error", "timbre")
    await api.change(models=frozenset({"lengths"}))
    for over, key in ((bare, api.everything), (api, await api.key(*Scope))):
        options = (await over.send("GET", OPTIONS, key)).json()
        assert (options["available"], options["limits"]["concurrent_drafts"]) == (False, PENDING_DRAFTS)
        reply = await order(over, key)
        refused(reply, 501, "not_implemented")
        assert reply.headers["x-should-retry"] == "false"
    refused(await api.with_models(voice_design={}).send("GET", OPTIONS), 501, "not_implemented")


async def test_502_a_designer_whose_start_has_failed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = api.engine(DEPLOYMENT)
    monkeypatch.setattr(engine, "is_failing", lambda: True)
    refused(await order(api), 502, "upstream_error")
    assert engine.warmed == 1
    assert await listed(api) == []


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
    assert (len(designer(api).jobs), await api.usage()) == (3, [])
    assert (await order(api)).status_code == 202  # nothing is held any more


async def test_a_failure_that_the_database_did_not_count_ends_no_draft(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = AsyncMock(side_effect=[STATE_UNAVAILABLE(), 1])
    monkeypatch.setattr(api.state.drafts, "count_failure", counting)
    assert (await made(api, instruct="fail 2"))["status"] == "ready"
    assert counting.await_count == 2


async def test_a_busy_or_cold_designer_is_waited_for(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = api.engine(DEPLOYMENT)
    faults, call = [BUSY("busy"), *(WARMING_UP() for _ in range(6))], engine.call

    async def moody(*arguments: Any, **options: Any) -> Any:
        if faults:
            raise faults.pop()
        return await call(*arguments, **options)

    monkeypatch.setattr(engine, "call", moody)
    assert (await made(api))["status"] == "ready"


async def test_a_fault_of_our_own_ends_the_draft(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.state.drafts, "finish", None)
    assert (await made(api))["error"] == draft_worker.FAILED


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


async def test_an_adoption_sent_twice_is_one_voice(api: Api) -> None:
    draft, headers = await made(api), {"Idempotency-Key": "k1"}
    path = f"{DESIGNS}/{draft['id']}/adopt"
    first, second = [await api.send("POST", path, headers=headers) for _ in range(2)]
    assert (first.status_code, second.status_code, second.json()) == (200, 200, first.json())
    refused(await adopt(api, draft), 400, "invalid_request_error")
    assert len(await api.state.voices.of(1)) == 1


def later(api: Api, seconds: float) -> Drafts:
    """The drafts as another process sees them `seconds` later."""
    return Drafts(api.state.database, api.state.blobs, lambda: time.time() + seconds)


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


async def test_what_was_made_of_a_discarded_draft_goes_and_is_billed(api: Api, held: Draft, tmp_path: Path) -> None:
    # Discarded by another process, which this one does not know yet.
    await api.state.drafts.discard(1, held["id"])
    designer(api).go.set()
    await until_idle(api.service.drafts)
    (line,) = await api.usage()
    after = await poll(api, held)
    assert (after["status"], after["cost_micro_eur"]) == ("discarded", line.cost_micro_eur)
    assert (stored(tmp_path), line.unit) == ([], "synthesis_ms")


async def test_a_draft_discarded_elsewhere_is_worked_on_no_more(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_worker, "RENEW_S", 0.01)
    draft = await ordered(api, instruct="hold")
    await until_designed(api)
    await api.state.drafts.discard(1, draft["id"])
    await until_idle(api.service.drafts)
    assert designer(api).under_way == 0
