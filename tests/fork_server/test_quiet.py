"""A server imports when nobody needs the cores."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pytest

from deployments.fork_server import server

RAYLET = 7

Wait = Callable[..., tuple[float, bool]]


@dataclass
class Machine:
    """A clock that only looks move, and cores that are idle as `cores` says, look by look."""

    cores: Iterator[float]
    now_s: float = 100.0
    idle_s: float = 5000.0
    raylet_ends_s: float = 1e9

    def look(self, raylet: int, within_s: float) -> bool:
        assert raylet == RAYLET
        self.now_s += within_s
        self.idle_s += within_s * next(self.cores) if within_s else 0
        return self.now_s >= self.raylet_ends_s


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Wait:
    """How long a server waits on two cores of which so many are idle, and whether it begins then."""

    def wait(cores: Iterable[float], quiet_s: float = 5.0, raylet_ends_s: float = 1e9) -> tuple[float, bool]:
        machine = Machine(itertools.chain(cores, itertools.repeat(2.0)), raylet_ends_s=raylet_ends_s)
        monkeypatch.setattr(server, "has_ended", machine.look)
        monkeypatch.setattr(server, "idle_s", lambda: machine.idle_s)
        monkeypatch.setattr(server.time, "monotonic", lambda: machine.now_s)
        monkeypatch.setattr(server.os, "cpu_count", lambda: 2)
        begins = server.wait_until_idle(RAYLET, quiet_s)
        return round(machine.now_s - 100, 1), begins

    return wait


def looks(seconds: float, cores: float) -> list[float]:
    return [cores] * round(seconds / server.LOOK_S)


@pytest.mark.parametrize(
    ("cores", "waited_s"),
    [
        ([], 5.0),
        (looks(8, 0.3), 13.0),  # an answer of eight seconds
        (looks(4, 1.9) + looks(1, 0.0) + looks(4, 1.9) + looks(1, 0.0), 15.0),  # a conversation
        (looks(100, 1.51), 5.0),
        (looks(100, 1.49), server.LATEST_S),
    ],
)
def test_imports_begin_when_cores_were_free_for_some_seconds(waits: Wait, cores: list[float], waited_s: float) -> None:
    waited, begins = waits(cores)
    assert begins
    assert waited == pytest.approx(waited_s, abs=2 * server.LOOK_S)


def test_a_server_of_a_test_begins_at_once(waits: Wait) -> None:
    assert waits(looks(100, 0.0), quiet_s=0) == (0.0, True)


def test_a_server_whose_raylet_ends_meanwhile_never_begins(waits: Wait) -> None:
    assert waits(looks(100, 0.0), raylet_ends_s=103) == (pytest.approx(3, abs=0.3), False)


def test_the_kernel_says_how_long_cores_were_idle() -> None:
    assert 0 <= server.idle_s() <= server.idle_s()
