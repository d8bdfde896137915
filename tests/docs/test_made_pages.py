"""Pages that are made are what they would be if they were made now, and their examples answer as they should."""

from __future__ import annotations

import pytest

from contract.errors import FAULTS
from contract.remedies import REMEDIES
from docs.made.__main__ import FOLDER, PAGES
from docs.made.routes import Example as RouteExample
from docs.made.routes import examples
from tests.docs.conftest import Reader
from tests.docs.pages import Example


@pytest.mark.parametrize("name", PAGES)
def test_a_made_page_is_fresh(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == PAGES[name](), "stale: run `make docs`"


def test_every_error_has_a_cause_and_a_remedy() -> None:
    assert REMEDIES.keys() == FAULTS.keys()
    for name, remedy in REMEDIES.items():
        assert remedy.cause, name
        assert not remedy.cause.endswith("."), name
        assert remedy.remedy.endswith("."), name


def test_a_wait_is_either_fixed_or_computed() -> None:
    assert [name for name, remedy in REMEDIES.items() if remedy.waits and FAULTS[name].retry_after_s] == []


@pytest.mark.parametrize(
    ("route", "example"), examples().items(), ids=lambda value: value if type(value) is str else ""
)
def test_an_example_is_answered(reader: Reader, route: str, example: RouteExample) -> None:
    (reader.folder / "var/morning.wav").write_bytes(b"good morning")
    done = reader.paste(Example("bash", example.shell, None))
    if example.status == 200:
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        assert f"error: {example.status}" in done.stderr, done.stdout + done.stderr
