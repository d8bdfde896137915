"""The table of steps by which the money of one request moves; histories of it: `test_ledger_processes.py`."""

from __future__ import annotations

from itertools import product

import pytest

from state.billing import purse
from state.billing.reservation import TRANSITIONS, Funds, Reservation, Step

HAS_PURSE = {Funds.PURSE, Funds.MOVING}
MAY_HAVE_ROW = {Funds.OPENING, Funds.MOVING, Funds.ROW}


def reachable(start: Funds) -> set[Funds]:
    places = {start}
    while more := {ends[place] for ends in TRANSITIONS.values() for place in places & ends.keys()} - places:
        places |= more
    return places


def test_every_place_is_reached_and_a_row_is_never_forgotten() -> None:
    assert reachable(Funds.NONE) == set(Funds)
    for place in MAY_HAVE_ROW:
        assert reachable(place) <= MAY_HAVE_ROW
        assert Funds.ROW in reachable(place)
    assert reachable(Funds.ROW) == {Funds.ROW}, "what is known stays known"
    assert TRANSITIONS.keys() == set(Step)


@pytest.mark.parametrize(("place", "step"), [*product(Funds, Step)])
def test_money_moves_as_the_table_says_or_not_at_all(place: Funds, step: Step) -> None:
    giver = purse.Purse((1, None))
    hold = _at(place, giver)
    if place not in TRANSITIONS[step]:
        with pytest.raises(KeyError):
            hold.move(step)
        assert hold.funds is place
        return
    hold.move(step, giver if step is Step.TAKE else None)
    assert (hold.purse is giver) == (hold.funds in HAS_PURSE)
    assert hold.may_have_row == (hold.funds in MAY_HAVE_ROW)
    assert hold.held_micro_eur == (0 if step is Step.LOSE else 10)


def _at(place: Funds, giver: purse.Purse) -> Reservation:
    hold = Reservation.__new__(Reservation)
    hold.funds, hold.held_micro_eur, hold.marked = place, 10, None
    hold.purse = giver if place in HAS_PURSE else None
    return hold
