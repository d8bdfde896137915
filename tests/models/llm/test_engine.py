"""What a start does to its process."""

import gc
from contextlib import suppress

import pytest

from models.cpu import fitting_dtype
from models.llm.engine import _uncollected, fitted


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


BFLOAT16 = {"dtype": "bfloat16", "kv_cache_memory_bytes": 1 << 28, "max_num_seqs": 4}


def test_a_cpu_without_bfloat16_runs_in_float32_with_as_many_tokens_in_the_cache() -> None:
    given = fitted(BFLOAT16, "cpu")
    if fitting_dtype("bfloat16", "cpu") == "bfloat16":
        assert given == BFLOAT16
    else:
        assert given == {"dtype": "float32", "kv_cache_memory_bytes": 1 << 29, "max_num_seqs": 4}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_what_every_processor_has_stays(device: str, dtype: str) -> None:
    arguments = BFLOAT16 | {"dtype": dtype}
    assert fitted(arguments, device) == arguments


def test_gpus_get_what_the_stanza_says() -> None:
    assert fitted(BFLOAT16, "cuda") == BFLOAT16


def test_float16_is_never_emulated_on_a_cpu() -> None:
    assert (fitting_dtype("float16", "cpu"), fitting_dtype("float16", "cuda")) == ("float32", "float16")
