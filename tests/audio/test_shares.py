"""What is shared is never more than there is, and one owner leaves something to the next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.shares import Shares, SharesExhausted


def test_an_owner_has_at_most_what_stays_free() -> None:
    for amount in (49, 50):
        shares = Shares(100)
        shares.take("a", amount)
        assert shares.free == 100 - amount
    shares = Shares(100)
    with pytest.raises(SharesExhausted):
        shares.take("a", 51)
    assert shares.free == 100


def test_the_next_one_has_half_of_the_rest_and_what_is_given_back_can_be_taken_again() -> None:
    shares = Shares(100)
    with shares._lock:
        shares.give_back("a", 0)  # as a finaliser does, which may run while `take` is under way
    shares.take("a", 30)
    shares.take("a", 20)
    with pytest.raises(SharesExhausted):
        shares.take("a", 1)
    shares.take("b", 25)
    with pytest.raises(SharesExhausted):
        shares.take("b", 1)
    shares.take("c", 12)
    shares.give_back("a", 50)
    shares.take("b", 19)
    assert shares.free == 100 - 25 - 12 - 19


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60), st.booleans())))
def test_whatever_is_taken_something_is_left(steps: list[tuple[str, int, bool]]) -> None:
    shares, taken = Shares(100), []
    for owner, amount, gives_back in steps:
        try:
            shares.take(owner, amount)
        except SharesExhausted:
            assert sum(own for who, own in taken if who == owner) + amount > shares.free - amount
        else:
            taken.append((owner, amount))
        if gives_back and taken:
            shares.give_back(*taken.pop())
        assert shares.free == 100 - sum(own for _, own in taken)
        assert shares.free > 0
