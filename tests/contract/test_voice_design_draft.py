"""What may become of a draft: every state with every event."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from contract.voice_design.draft import (
    DRAFT_STATES,
    NOT_READY,
    TRANSITIONS,
    DraftEvent,
    DraftState,
    refuse_adoption,
    sources,
)
from tests.contract.bodies import refusal

TABLE: dict[DraftState, dict[DraftEvent, DraftState]] = {
    "pending": {"finish": "ready", "fail": "failed", "expire": "failed", "discard": "discarded"},
    "ready": {"adopt": "adopted", "discard": "discarded"},
    "adopted": {"discard": "discarded"},
    "discarded": {"discard": "discarded"},
    "failed": {"discard": "discarded"},
}
"""The transitions of a draft; an event that is missing changes nothing."""


@pytest.mark.parametrize(("state", "event"), list(itertools.product(DRAFT_STATES, get_args(DraftEvent))))
def test_every_event_in_every_state(state: DraftState, event: DraftEvent) -> None:
    assert TRANSITIONS.get((state, event)) == TABLE[state].get(event)
    assert (state in sources(event)) == (event in TABLE[state])


def test_the_states_are_those_of_the_spec() -> None:
    assert set(DRAFT_STATES) == {"pending", "ready", "adopted", "discarded", "failed"} == TABLE.keys()


@pytest.mark.parametrize("state", DRAFT_STATES)
def test_only_a_ready_draft_can_be_adopted(state: DraftState) -> None:
    if state == "ready":
        refuse_adoption(state)
        return
    assert NOT_READY[state] in refusal(refuse_adoption, state).message


def test_no_draft_comes_back_once_it_was_discarded() -> None:
    reached, found = set(), {"discarded"}
    while found != reached:
        reached = set(found)
        found |= {after for (state, _), after in TRANSITIONS.items() if state in found}
    assert reached == {"discarded"}
