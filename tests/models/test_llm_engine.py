"""What a start does to its process."""

import gc
from contextlib import suppress

import pytest

from models.llm.engine import _uncollected


@pytest.mark.parametrize("before", [True, False])
def test_the_collector_runs_on_as_it_did(before: bool) -> None:
    was = gc.isenabled()
    (gc.enable if before else gc.disable)()
    try:
        with suppress(RuntimeError), _uncollected():
            assert not gc.isenabled()
            raise RuntimeError("the engine does not load")
        assert gc.isenabled() == before
    finally:
        gc.unfreeze()
        (gc.enable if was else gc.disable)()


def test_what_was_loaded_is_not_looked_through_again() -> None:
    with _uncollected():
        loaded = [[] for _ in range(1000)]
    try:
        assert gc.get_freeze_count() >= len(loaded)
        assert not any(found is loaded for found in gc.get_objects())
    finally:
        gc.unfreeze()
