"""The table of errors, ids, hours of warmth, and traces that clients send."""

import os
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from contract.catalog import Serving
from contract.errors import FAULTS, ApiError, Fault
from contract.hours import WarmHours
from contract.ids import STOCK, random_id
from contract.tracing import LOAD_PHASES, Loading

TYPES = {
    **dict.fromkeys((400, 404, 405, 406, 408, 409, 413, 415, 422), "invalid_request_error"),
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    429: "rate_limit_error",
    **dict.fromkeys((500, 503), "server_error"),
    501: "not_implemented",
    **dict.fromkeys((502, 504), "upstream_error"),
}


def test_a_row_decides_type_body_and_headers_of_an_error_that_can_be_pickled_between_replicas() -> None:
    """A new error is one row: nothing but the table says its status."""
    new = Fault("OUT_OF_TEA", 400, "out_of_tea", text="there is no tea", retry_after_s=60, should_retry=False)
    with mock.patch.dict(FAULTS, {new.name: new}):
        assert new().headers() == {"Retry-After": "60", "x-should-retry": "false"}
        for fault in FAULTS.values():
            error = fault("came x, allowed y", param="p", retry_after_s=7, extra={"supported": ["de"]})
            copy = pickle.loads(pickle.dumps(error))
            assert type(copy) is ApiError
            assert (copy.body(), copy.headers()) == (error.body(), error.headers()), fault.name
            told = error.body()["error"]
            assert set(told) == {"message", "type", "param", "code", "supported"}, fault.name
            assert (told["type"], told["code"]) == (TYPES[fault.status], fault.code), fault.name
            if fault.status >= 500 and fault.status != 501:
                assert error.message == fault.text, "what really happened is not repeated"


def test_ids_are_32_digits_and_all_different_over_several_stocks_and_threads() -> None:
    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(lambda _: random_id(), range(20 * STOCK)))
    assert len({*ids}) == len(ids)
    assert all(re.fullmatch("[0-9a-f]{32}", text) for text in ids)


def test_a_child_does_not_go_on_from_the_stock_of_its_parent() -> None:
    random_id()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, "".join(random_id() for _ in range(3)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    of_child = os.read(reader, 96).decode()
    os.close(reader)
    os.close(writer)
    ours = {random_id() for _ in range(STOCK)}
    assert len(of_child) == 96
    assert not ours & {of_child[start : start + 32] for start in (0, 32, 64)}


def test_hours_hold_from_the_first_on_and_no_more_at_the_last() -> None:
    hours = WarmHours(zone="Europe/Berlin", start=8, end=18)
    moments = {
        "2026-11-25 07:59:59": False,
        "2026-11-25 08:00:00": True,
        "2026-11-25 17:59:59": True,
        "2026-11-25 18:00:00": False,
        "2026-11-28 12:00:00": False,  # a Saturday
        "2026-07-22 08:00:00": True,  # in summer time
    }
    zone = ZoneInfo("Europe/Berlin")
    times = {moment: datetime.fromisoformat(moment).replace(tzinfo=zone).timestamp() for moment in moments}
    assert {moment: hours.hold(at_s) for moment, at_s in times.items()} == moments


HOURLESS: list[tuple[dict[str, object], str]] = [
    ({"zone": "Berlin"}, "`Berlin` is no time zone of this machine; one is `Europe/Berlin`"),
    ({"zone": "../etc/passwd"}, "is no time zone of this machine"),
    ({"start": 18, "end": 8}, "hours over midnight are two entries"),
    ({"start": 8, "end": 8}, "`start` is 8 and `end` is 8"),
    ({"end": 25}, "less than or equal to 24"),
    ({"days": ["mo"]}, "'mon'"),
]


def test_hours_that_are_none_are_refused_with_a_reason() -> None:
    for changed, sentence in HOURLESS:
        with pytest.raises(ValidationError) as caught:
            WarmHours.model_validate({"zone": "Europe/Berlin", "start": 8, "end": 18} | changed)
        assert sentence in str(caught.value)


def test_an_engine_stays_no_shorter_at_most_than_at_least() -> None:
    with pytest.raises(ValidationError, match="`idle_least_s` is 400, but the most that an engine stays is 300 s"):
        Serving(adapter="a.b:C", runtime="x", idle_least_s=400)
    assert Serving(adapter="a.b:C", runtime="x", idle_s=5).idle_s == 5


def test_the_phases_of_a_load_follow_each_other_and_are_its_time() -> None:
    for loading, ends_s in (
        (Loading(2.0, 5.0, 4.0, "import"), [13.0, 15.0, 19.0, 20.0]),
        (Loading(7.0, 5.0, 4.0, "import"), [10.0, 15.0, 19.0, 20.0]),  # its process was there before
        (Loading(0.0, 0.0, 0.0, "fork"), [20.0] * 4),
        (Loading(1.0, 90.0, 30.0, "import"), [10.0] * 3 + [20.0]),  # so was its model, nearly
    ):
        phases = loading.phases(10.0, 20.0)
        begins_s = [10.0, *ends_s[:-1]]
        assert phases == list(zip(LOAD_PHASES, begins_s, ends_s, strict=True))
