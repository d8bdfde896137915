"""Hours of warmth: which they are, and what is refused."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from contract.catalog import Serving
from contract.hours import WarmHours

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("moment", "holds"),
    [
        ("2026-11-25 07:59:59", False),
        ("2026-11-25 08:00:00", True),
        ("2026-11-25 17:59:59", True),
        ("2026-11-25 18:00:00", False),
        ("2026-11-28 12:00:00", False),  # a Saturday
        ("2026-07-22 08:00:00", True),  # in summer time
    ],
)
def test_hours_hold_from_the_first_on_and_no_more_at_the_last(moment: str, holds: bool) -> None:
    hours = WarmHours(zone="Europe/Berlin", start=8, end=18)
    assert hours.hold(datetime.fromisoformat(moment).replace(tzinfo=BERLIN).timestamp()) == holds


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"zone": "Berlin"}, "`Berlin` is no time zone of this machine; one is `Europe/Berlin`"),
        ({"zone": "../etc/passwd"}, "is no time zone of this machine"),
        ({"start": 18, "end": 8}, "hours over midnight are two entries"),
        ({"start": 8, "end": 8}, "`start` is 8 and `end` is 8"),
        ({"end": 25}, "less than or equal to 24"),
        ({"days": ["mo"]}, "'mon'"),
    ],
)
def test_hours_that_are_none_are_refused_with_a_reason(changed: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValidationError) as caught:
        WarmHours.model_validate({"zone": "Europe/Berlin", "start": 8, "end": 18} | changed)
    assert sentence in str(caught.value)


def test_an_engine_stays_no_shorter_at_most_than_at_least() -> None:
    with pytest.raises(ValidationError, match="`idle_least_s` is 400, but the most that an engine stays is 300 s"):
        Serving(adapter="a.b:C", runtime="x", idle_least_s=400)
    assert Serving(adapter="a.b:C", runtime="x", idle_s=5).idle_s == 5
