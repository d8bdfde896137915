"""The comparison of gateways: what it needs of each peer, and what its table says. It is not run here."""

from __future__ import annotations

import re

import pytest

from benchmarks.servers import Server
from benchmarks.speed.gateway import PEERS, System, table
from benchmarks.speed.load import Figures
from tests.docs.pages import ROOT


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_has_an_environment_that_make_bench_makes_of_a_lock(name: str) -> None:
    (made,) = re.findall(r"^PEERS := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    pins = re.findall(
        r"^[a-z][\w.-]*==\S+ \\\n    --hash=sha256:",
        (ROOT / f"requirements/peer-{name}.lock").read_text(),
        re.MULTILINE,
    )
    assert name in made.split()
    assert pins
    assert f"beside peer-{name}" in (ROOT / "requirements/lock.sh").read_text("utf-8")


def test_the_table_divides_by_our_rate_and_subtracts_the_first_system() -> None:
    systems = [System(Server(name, 0)) for name in ("bare", "ours", "peer")]
    rates_and_ms = [(100.0, 1.0), (50.0, 3.0), (75.0, 2.0)]
    figures = {
        (system.name, (False, 1)): [Figures(rate, (ms, ms, ms), (ms, ms, ms), {})]
        for system, (rate, ms) in zip(systems, rates_and_ms, strict=True)
    }
    heading, _, *rows = table(systems, figures, systems[1]).splitlines()
    assert heading.endswith("| times ours |")
    assert [tuple(row.split(" | ")[-2:]) for row in rows] == [("0.0", "2.00 |"), ("2.0", "1.00 |"), ("1.0", "1.50 |")]
