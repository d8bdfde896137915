"""Start of a server, which imports when nobody needs the cores, and what a replica measures of its own."""

import builtins
import importlib
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deployments.fork_server import footprint, server

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


def test_a_server_of_a_test_begins_at_once_and_one_without_a_raylet_never(waits: Wait) -> None:
    assert waits(looks(100, 0.0), quiet_s=0) == (0.0, True)
    assert waits(looks(100, 0.0), raylet_ends_s=103) == (pytest.approx(3, abs=0.3), False)


def test_the_kernel_says_how_long_cores_were_idle() -> None:
    assert 0 <= server.idle_s() <= server.idle_s()


SPENT_S = 0.05


def module(folder: Path, name: str, body: str = "") -> None:
    """A module whose import takes SPENT_S, and whatever `body` takes."""
    (folder / f"{name}.py").write_text(f"import time\ntime.sleep({SPENT_S})\n{body}")


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    module(tmp_path, "outer_of_two", "import inner_of_two\n")
    module(tmp_path, "inner_of_two")
    module(tmp_path, "failing", "raise RuntimeError\n")
    for name in ("outer_of_two", "inner_of_two", "failing"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.usefixtures("modules")
def test_imports_are_measured_once_however_deep_they_go() -> None:
    real, began_s = builtins.__import__, time.perf_counter()
    with footprint.importing() as imports:
        import outer_of_two  # type: ignore[import-not-found]  # noqa: F401
    assert 2 * SPENT_S <= imports.spent_s <= time.perf_counter() - began_s
    assert builtins.__import__ is real


@pytest.mark.usefixtures("modules")
def test_an_import_that_fails_is_measured_and_leaves_everything_as_it_was() -> None:
    real = builtins.__import__
    with pytest.raises(RuntimeError), footprint.importing() as imports:
        import failing  # type: ignore[import-not-found]  # noqa: F401
    assert imports.spent_s >= SPENT_S
    assert builtins.__import__ is real


@pytest.mark.usefixtures("modules")
def test_imports_of_other_threads_are_not_counted() -> None:
    with footprint.importing() as imports:
        thread = threading.Thread(target=importlib.import_module, args=("outer_of_two",))
        thread.start()
        thread.join()
    assert imports.spent_s < SPENT_S


def test_a_process_knows_its_age() -> None:
    code = "from deployments.fork_server.footprint import age_s; print(age_s())"
    began_s = time.perf_counter()
    age_s = float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    tick_s = 0.02  # the kernel counts hundredths
    assert 0 < age_s <= time.perf_counter() - began_s + tick_s
    assert age_s < footprint.age_s()
