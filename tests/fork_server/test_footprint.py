"""What a replica measures of its own start: the age of its process, and its imports."""

from __future__ import annotations

import builtins
import importlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from deployments.fork_server import footprint

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
