"""What an engine refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from contract.errors import ApiError


@contextmanager
def refused(by: str | int, says: str | None = None, **fields: Any) -> Iterator[pytest.ExceptionInfo[ApiError]]:
    """An error of that name, code or status, whose sentence matches `says`, and whose other fields are `fields`."""
    with pytest.raises(ApiError, match=says) as caught:
        yield caught
    fault = caught.value.fault
    assert by in (fault.name, fault.code, fault.status)
    assert {name: getattr(caught.value, name) for name in fields} == fields
