"""The reliability plot: how often each model was right, by how sure it was."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks.quality.verdicts import Evaluated, Verdict, interval
from models.decisions.measuring import BINS


def draw(found: Sequence[Evaluated], file: Path) -> None:
    """One panel for each model: how often it was right, by how sure it was."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(found), figsize=(4.6 * len(found), 4.4), squeeze=False, sharey=True)
    for panel, one in zip(panels[0], found, strict=True):
        panel.plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1)
        for place, judged in sorted(_bins(one.verdicts).items()):
            share = statistics.fmean(right for _, right in judged)
            low, high = interval(sum(right for _, right in judged), len(judged))
            middle = (place + 0.5) / BINS
            panel.bar(middle, share, 0.9 / BINS, color="tab:blue", alpha=0.75)
            panel.errorbar(middle, share, [[share - low], [high - share]], color="black", linewidth=1, capsize=2)
            panel.text(middle, min(high + 0.015, 0.96), f"{len(judged)}", ha="center", va="bottom", fontsize=8)
        panel.set(xlim=(0, 1), ylim=(0, 1), title=one.model_id, xlabel="probability of the chosen answer")
    panels[0][0].set_ylabel("share of right answers")
    file.parent.mkdir(exist_ok=True)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


def _bins(verdicts: Sequence[Verdict]) -> dict[int, list[tuple[float, bool]]]:
    bins = defaultdict(list)
    for verdict in verdicts:
        bins[min(BINS - 1, int(max(verdict.found.probabilities) * BINS))].append(verdict.judged)
    return bins
