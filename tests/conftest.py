"""Fixtures of every folder."""

import gc
import os
import random
import shutil
import time
from collections.abc import Generator
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import create_engine

from contract.limits import RATE_WINDOW_S
from state.database.migrate import upgrade_schema
from tests.tiers import marker_of, scope_of, turn_of
from tests.waiting import run

ROOT = Path(__file__).parents[1]
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 8 << 30
"""How much of the memory's file system must be free, so that temporary folders are made there."""


# What is red was broken by a change: other examples are tried where HISTORIES asks for them, as `make campaign` does.
FIXED = "HISTORIES" not in os.environ
settings.register_profile("tests", deadline=None, derandomize=FIXED, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


def pytest_configure() -> None:
    """Puts temporary folders into memory where there is room: thousands of tests wait for what they write durably."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """No garbage is collected while all is imported, nor is what was imported looked through ever again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives each test the marker of its file, and moves what takes longest to the front."""
    files = {item.path: item.path.relative_to(ROOT).as_posix() for item in items}
    for item in items:
        if marker := marker_of(files[item.path]):
            item.add_marker(marker)
    items.sort(key=lambda item: turn_of(files[item.path]))
    if seed := os.environ.get("SHUFFLE"):  # no test may need what another has left
        order = sorted({name for name in files.values() if not name.startswith("tests/cluster/")})
        turns = {name: turn for turn, name in enumerate(random.Random(seed).sample(order, len(order)))}
        items.sort(key=lambda item: turns.get(files[item.path], -1))


MAY_SKIP = {
    "this processor has no int8 in AVX-512": "the machine's own",
    "this processor has no kernel for 8 bits beside bfloat16": "the same, or `-p tests.avx2`",
    "this onnxruntime can use CUDA": "and one test is of a machine without",
    "network namespaces want root and iproute2": "containers of some runners may not make any",
    "only root can be two users": "some runners are no root",
}
"""Reasons for which a test may be skipped where CI is set, and why."""


def _counted(report: Any) -> Any:
    """The report of a test or file; a skip is a failure in CI, where everything that a test needs is to be there."""
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        if reason not in MAY_SKIP:
            report.outcome, report.longrepr = "failed", f"{report.nodeid} was skipped in CI: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """A test that was skipped has failed in CI."""
    return _counted((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """The same of a file."""
    return _counted((yield))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of `--dist=loadfile`: a process gets a file at a time, or all files of one scope."""
    from xdist.scheduler import LoadFileScheduling

    class ByScope(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(super()._split_scope(nodeid))

    return ByScope(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is marked `virtual`. AnyIO would take the loop of a fixture of wider scope, if one is open."""
    if pyfuncitem.get_closest_marker("virtual") is None or not iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the schema and nothing else; to copy it is faster than to make it each time."""
    path = tmp_path_factory.mktemp("migrated") / "parlance.db"
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        upgrade_schema(connection)
    engine.dispose()
    return path


@pytest.fixture
def one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test begins together with a window of the rates: their minutes are the clock's, and one could end within."""
    real, late_s = time.time, RATE_WINDOW_S - time.time() % RATE_WINDOW_S
    monkeypatch.setattr(time, "time", lambda: real() + late_s)
