"""Refusals of an engine, stanzas that are changed, and loading without a network."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import models
from contract.catalog import Model
from contract.errors import ApiError


@contextmanager
def refused(by: str | int, says: str | None = None, **fields: Any) -> Iterator[pytest.ExceptionInfo[ApiError]]:
    """An error of that name, code or status, whose sentence matches `says`, and whose other fields are `fields`."""
    with pytest.raises(ApiError, match=says) as caught:
        yield caught
    fault = caught.value.fault
    assert by in (fault.name, fault.code, fault.status)
    assert {name: getattr(caught.value, name) for name in fields} == fields


def changed(model: Model, **serving: Any) -> Any:
    """`model` with other values in its table `serving`."""
    assert model.serving
    return model.model_copy(update={"serving": model.serving.model_copy(update=serving)})


def loaded_offline(model: Model, home: Path) -> Any:
    """The adapter of `model`, loaded as a replica does over the weights in `home`, while nothing can be reached."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARLANCE_HOME", str(home))
        patch.setattr(socket.socket, "connect", _refuse)
        return models.load(model)


def _refuse(*_: object) -> None:
    raise AssertionError("an engine that is offline reaches for the network")
