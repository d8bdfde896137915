"""Loading without a network."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

import models
from contract.catalog import Model


def loaded_offline(model: Model, home: Path) -> Any:
    """The adapter of `model`, loaded as a replica does over the weights in `home`, while nothing can be reached."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARLANCE_HOME", str(home))
        patch.setattr(socket.socket, "connect", _refuse)
        return models.load(model)


def _refuse(*_: object) -> None:
    raise AssertionError("an engine that is offline reaches for the network")
