"""GET /me/usage, and the times that ingress processes share."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import insert

from contract.access import Scope
from contract.errors import STATE_UNAVAILABLE, ApiError
from contract.limits import USAGE_DAYS
from deployments.ingress.report import share_times
from state import State
from state.database.tables import usage_lines
from state.facts import revise
from tests.api.conftest import Api, refused
from tests.api.engines import local_engines
from tests.catalogs import behaving, chat
from tests.state.doubles import WatchedDatabase

DAY_MS = 86_400_000
START_MS = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp()) * 1000
NOVEMBER = "/v1/me/usage?from=2026-11-01&to=2026-12-01"


async def bill(api: Api, *lines: dict[str, Any], org_id: int = 1, user_id: int | None = None) -> None:
    """Usage lines of November 2026, written as they would be by requests of then."""
    common = {
        "org_id": org_id, "user_id": user_id, "key_id": "k", "request_id": "r", "line": "chat:m", "model": "m",
        "at_ms": START_MS, "quantity": 5, "unit": "tokens", "quantities": '{"input_tokens":3,"output_tokens":2}',
        "cost_micro_eur": 7,
    }  # fmt: skip
    number = len(await api.usage())
    rows = [common | line | {"reservation_id": f"l{number + index}"} for index, line in enumerate(lines)]
    await api.state.database.run(lambda connection: connection.execute(insert(usage_lines), rows) and None)


async def test_rows_are_days_and_models_with_sums_by_unit(api: Api) -> None:
    await bill(
        api,
        {"at_ms": START_MS},
        {"at_ms": START_MS + DAY_MS - 1},
        {"at_ms": START_MS + DAY_MS, "model": "b"},
        {"at_ms": START_MS + DAY_MS, "model": "a", "unit": "characters", "quantity": 9, "quantities": None},
        {"at_ms": START_MS - 1},
        {"at_ms": START_MS + 30 * DAY_MS},
    )
    reply = await api.send("GET", NOVEMBER)
    assert reply.status_code == 200, reply.text
    usage = reply.json()
    assert usage["data"] == [
        {"day": "2026-11-01", "model": "m", "requests": 2, "cost_micro_eur": 14,
         "quantities": {"input_tokens": 6, "output_tokens": 4}},
        {"day": "2026-11-02", "model": "a", "requests": 1, "cost_micro_eur": 7, "quantities": {"characters": 9}},
        {"day": "2026-11-02", "model": "b", "requests": 1, "cost_micro_eur": 7,
         "quantities": {"input_tokens": 3, "output_tokens": 2}},
    ]  # fmt: skip
    assert usage["total_cost_micro_eur"] == 28
    assert (usage["organisation"], usage["user"], usage["time_zone"]) == ("acme", None, "UTC")
    assert (usage["since"], usage["until"]) == ("2026-11-01T00:00:00.000Z", "2026-12-01T00:00:00.000Z")
    assert (usage["has_more"], usage["next_cursor"]) == (False, None)


async def test_a_request_that_was_just_billed_is_there_with_what_the_budget_leaves(api: Api) -> None:
    await api.limit(10**9)
    assert (await api.chat()).status_code == 200
    (line,) = await api.usage()
    usage = (await api.send("GET", "/me/usage")).json()
    (row,) = usage["data"]
    assert (row["model"], row["requests"], row["cost_micro_eur"]) == ("obedient", 1, line.cost_micro_eur)
    assert row["quantities"] == line.quantities
    assert usage["total_cost_micro_eur"] == line.cost_micro_eur
    spend = usage["spend"]["organisation"]
    assert spend["left_micro_eur"] == 10**9 - spend["spent_micro_eur"] - spend["held_micro_eur"]
    assert usage["spend"] == (await api.send("GET", "/v1/me")).json()["spend"]


async def test_a_key_of_a_user_shows_the_usage_of_the_user_and_any_other_that_of_the_organisation(api: Api) -> None:
    eve, bob = await api.key(user="eve"), await api.key(Scope.CHAT, user="bob")
    user_id = (await api.caller(eve)).user_id
    await bill(api, {}, {})
    await bill(api, {}, user_id=user_id)
    totals = [(await api.send("GET", NOVEMBER, key)).json() for key in (eve, bob, None)]
    assert [(each["user"], each["total_cost_micro_eur"]) for each in totals] == [("eve", 7), ("bob", 0), (None, 21)]


async def test_whatever_a_client_names_it_gets_its_own(api: Api) -> None:
    stranger = await api.stranger()
    other = await api.caller(stranger)
    await bill(api, {}, {}, org_id=other.org_id)
    for name in ("organisation", "org", "org_id", "user", "user_id", "key_id"):
        value = {"organisation": "other", "org": "other", "user": "eve"}.get(name, str(other.org_id))
        usage = (await api.send("GET", f"{NOVEMBER}&{name}={value}")).json()
        assert (usage["organisation"], usage["data"], usage["total_cost_micro_eur"]) == ("acme", [], 0), name
    assert (await api.send("GET", NOVEMBER, stranger)).json()["total_cost_micro_eur"] == 14


async def test_pages_are_the_whole_and_each_says_the_total(api: Api) -> None:
    await bill(api, *({"at_ms": START_MS + day * DAY_MS, "model": f"m {n}"} for day in range(3) for n in range(3)))
    whole = (await api.send("GET", NOVEMBER)).json()["data"]
    for limit in (1, 2, 3, 8, 9, 10):
        rows: list[Any] = []
        cursor = ""
        while True:
            page = (await api.send("GET", f"{NOVEMBER}&limit={limit}{cursor}")).json()
            assert page["total_cost_micro_eur"] == 63
            assert len(page["data"]) <= limit
            rows += page["data"]
            assert page["has_more"] == (len(rows) < 9)
            if not page["has_more"]:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert rows == whole


REFUSED: list[tuple[str, str, str]] = [
    ("from=yesterday", "from", "write a date"),
    ("from=2026-13-01", "from", "2026-13-01"),
    ("from=2026-02-30", "from", "2026-02-30"),
    ("from=20261101", "from", "write a date"),
    ("from=", "from", "write a date"),
    ("to=2026-11-01T10:00:00", "to", "write a date"),
    ("to=2026-11-01T10:00:00+01:00", "to", "%2B"),
    ("to=2026-11-01T10:00:00%2B99:00", "to", "write a date"),
    ("to=9999-12-31", "to", "9998"),
    ("from=0001-01-01T00:00:00%2B01:00&to=0001-01-02", "to", "1971"),
    ("from=2026-11-02&to=2026-11-01", "from", "after"),
    (f"from=2025-01-01&to=2026-01-0{USAGE_DAYS - 363}", "from", str(USAGE_DAYS)),
    *((f"limit={limit}", "limit", "1 to 1000") for limit in ("0", "1001", "-1", "%D9%A3")),
    ("limit=ten", "limit", "ten"),
    *((f"cursor={cursor}", "cursor", "next_cursor") for cursor in ("", "nonsense", "%C3%A9")),
    ("cursor=MjAyNi0xMy0wMSBt", "cursor", "next_cursor"),  # the 13th month
    ("cursor=MjAyNi0xMS0wMQ==", "cursor", "next_cursor"),  # no model
    ("cursor=_w==", "cursor", "next_cursor"),  # no text
]


async def test_bad_parameters_are_400(api: Api) -> None:
    for query, param, says in REFUSED:
        refused(await api.send("GET", f"/v1/me/usage?{query}"), 400, "invalid_request_error", param, says)


async def test_times_are_days_or_rfc_3339(api: Api) -> None:
    await bill(api, {})
    for query in (
        "from=2026-11-01T01:00:00%2B01:00&to=2026-12-01T00:00:00Z",
        "from=2026-10-31T23:00:00-01:00&to=2026-12-01T00:00:00.000z",
        "from=2026-11-01&to=2026-11-01T00:00:00.001Z",
        f"from=2025-12-02&to=2026-12-0{USAGE_DAYS - 363}",
    ):
        reply = await api.send("GET", f"/v1/me/usage?{query}")
        assert reply.status_code == 200, reply.text
        assert reply.json()["total_cost_micro_eur"] == 7, query


def process() -> dict[str, Any]:
    """The gates of an ingress that has just started."""
    return local_engines(behaving(obedient=chat("obedient")))


async def test_what_two_processes_saw_is_known_to_both_and_to_the_next(state: State) -> None:
    one, other = process(), process()
    for _ in range(50):
        one["chat-obedient"].times["service"].add(1.0)
        other["chat-obedient"].times["service"].add(9.0)
    for gates_of in (one, other, one):
        await share_times(gates_of, state.database)
    after = process()
    await share_times(after, state.database)
    for gates_of in (one, other, after):
        service = gates_of["chat-obedient"].times["service"]
        assert (service.quantile(0.2), service.quantile(0.8)) == pytest.approx((1.0, 9.0), rel=0.1)
    assert after["chat-obedient"].times["load"].quantile(0.5) == 2.0, "of the stanza, until one was measured"
    await share_times(one, state.database)
    assert one["chat-obedient"].times["service"].quantile(0.2) == pytest.approx(1.0, rel=0.1), "and counted once"


async def test_nothing_is_lost_while_a_database_is_away(state: State) -> None:
    one = process()
    one["chat-obedient"].times["service"].add(1.0)
    with pytest.raises(ApiError):
        await share_times(one, WatchedDatabase(state.database, lambda _: STATE_UNAVAILABLE()))
    assert one["chat-obedient"].times["service"].unsaved == 1


async def test_times_that_cannot_be_read_are_learned_again(state: State, caplog: pytest.LogCaptureFixture) -> None:
    for text in ("{", '{"12": 1.0}', "[null]", '["1"]', "[-1]", "[1e10]", "[NaN]", "[[1.0]]"):
        await revise(state.database, {"service of chat-obedient": lambda _, text=text: text})
        one = process()
        one["chat-obedient"].times["service"].add(1.0)
        caplog.clear()
        await share_times(one, state.database)
        assert "cannot be read" in caplog.text, text
        after = process()
        await share_times(after, state.database)
        assert after["chat-obedient"].times["service"].quantile(0.2) == pytest.approx(1.0, rel=0.1), text
