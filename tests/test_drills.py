"""What a change touches, as CONTRIBUTING.md promises it; its table says which drills are done elsewhere."""

from __future__ import annotations

from contract.errors import FAULTS, Fault


def test_a_new_error_is_one_row() -> None:
    """Nothing but the table says a status: every row makes an error whose reply comes from its columns alone."""
    row = Fault("OUT_OF_TEA", 418, "out_of_tea", text="there is no tea", retry_after_s=60, should_retry=False)
    FAULTS[row.name] = row
    try:
        error = row()
    finally:
        del FAULTS[row.name]
    assert error.body()["error"]["code"] == "out_of_tea"
    assert error.headers() == {"Retry-After": "60", "x-should-retry": "false"}
