"""The phases of a load, as a replica tells of them."""

from __future__ import annotations

import pytest

from contract.tracing import LOAD_PHASES, Loading


@pytest.mark.parametrize(
    ("loading", "ends_s"),
    [
        (Loading(2.0, 5.0, 4.0, "import"), [13.0, 15.0, 19.0, 20.0]),
        (Loading(7.0, 5.0, 4.0, "import"), [10.0, 15.0, 19.0, 20.0]),  # its process was there before
        (Loading(0.0, 0.0, 0.0, "fork"), [20.0] * 4),
        (Loading(1.0, 90.0, 30.0, "import"), [10.0] * 3 + [20.0]),  # so was its model, nearly
    ],
)
def test_the_phases_of_a_load_follow_each_other_and_are_its_time(loading: Loading, ends_s: list[float]) -> None:
    phases = loading.phases(10.0, 20.0)
    assert [name for name, _, _ in phases] == list(LOAD_PHASES)
    assert [end_s for _, _, end_s in phases] == ends_s
    assert [begin_s for _, begin_s, _ in phases] == [10.0, *ends_s[:-1]]
