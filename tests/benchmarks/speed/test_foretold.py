"""What graphs did with traces is foretold by the simulation as it is now."""

from __future__ import annotations

import pytest

from benchmarks.speed import foretold
from benchmarks.speed.foretold import Seen, foretell, stored

RUNS = {f"{seen.shape} by {seen.by}": seen for seen in stored()}
TOO_WIDE = "burst by serve"
"""Its p95 is anywhere between 6 and 12 s."""


@pytest.mark.parametrize("name", RUNS)
def test_a_simulation_foretells_what_a_graph_did(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foretold, "SIMULATIONS", 5)
    seen: Seen = RUNS[name]
    p50_s, p95_s, _, running_s = seen.figures
    told_p50_s, told_p95_s, _, told_running_s = foretell(seen).mean(0)
    assert told_running_s == pytest.approx(running_s, rel=0.15)
    assert told_p50_s == pytest.approx(p50_s, rel=0.15, abs=0.05)
    assert told_p95_s == pytest.approx(p95_s, rel=1.0 if name == TOO_WIDE else 0.15, abs=0.05)


def test_a_trace_of_each_shape_was_asked_under_both_policies() -> None:
    assert RUNS.keys() == {f"{shape} by {by}" for shape in foretold.SHAPES for by in ("serve", "policy")}
