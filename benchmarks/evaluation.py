"""How often the decision models of a profile are right, and how far their probabilities can be believed.

    python -m benchmarks.evaluation --limit 20      a first look, in half a minute; writes nothing
    python -m benchmarks.evaluation                 every example; writes the tables and the plot
    python -m benchmarks.evaluation --models decision-v2 --examples my.jsonl --limit 1000

Each model is loaded as a replica loads it, measured on the examples of the presets (that is where its temperature comes
from), and then asked about states that it was not fitted on: `benchmarks/examples/decisions.jsonl`, one on each line.
Lines of your own say whether a model is good enough for your questions; the file's own module explains their form.

The tables replace what is between two marks in `benchmarks/results/evaluation.md`, and the plot is
`docs/images/reliability.png`. `docs/evaluation.md` explains both.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress

import configs
import models
from benchmarks.examples import FILE, OWN, Case, load
from contract.decisions.answers import ABSTAINING, Distribution, abstain_reasons, distribution
from contract.decisions.engine import Measurement
from contract.decisions.policy import Policy
from contract.decisions.presets import Preset
from contract.decisions.questions import Question
from models.decisions.measuring import BINS, calibration_error

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results/evaluation.md"
PLOT = ROOT / "docs/images/reliability.png"
MARKS = ("<!-- tables of benchmarks.evaluation -->", "<!-- end of the tables -->")
THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One question of one example as a model answered it."""

    case: Case
    name: str
    found: Distribution

    @property
    def question(self) -> Question:
        """What was asked."""
        return self.case.questions[self.name]

    @property
    def expected(self) -> int:
        """The place of the right label."""
        return self.case.expected[self.name]

    @property
    def right(self) -> bool:
        """Whether the most likely label is the expected one."""
        return self.found.best == self.expected

    @property
    def judged(self) -> tuple[float, bool]:
        """Confidence and rightness, as the calibration error wants them."""
        return max(self.found.probabilities), self.right


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A model, what its start measured, and every verdict in the order of the file."""

    model_id: str
    measured: Measurement
    verdicts: list[Verdict]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evaluation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--profile", default="embedded", choices=configs.PROFILES, help="whose models (embedded)")
    parser.add_argument("--models", nargs="+", metavar="ID", help="only these decision models")
    parser.add_argument(
        "--examples", type=Path, default=FILE, help="a file of your own, in the form of decisions.jsonl"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="only N examples, spread over the file; writes nothing")
    options = parser.parse_args()
    catalog = configs.load(options.profile)
    offered = {id: model for id, model in catalog.decisions.items() if model.serving}
    if unknown := set(options.models or ()) - set(offered):
        parser.error(f"there is no decision model {', '.join(sorted(unknown))}; there are {', '.join(offered)}")
    cases = load(catalog.presets, options.examples)
    if options.limit:
        cases = cases[:: max(1, math.ceil(len(cases) / options.limit))]
    with Progress() as progress:
        found = []
        for id in options.models or offered:
            task = progress.add_task(id, total=len(cases))
            evaluating = evaluate(id, offered[id], cases, catalog.presets.values(), lambda t=task: progress.advance(t))
            found.append(asyncio.run(evaluating))
    print(tables := report(found))
    if not options.limit and options.examples == FILE and not options.models:
        write(tables)
        draw(found)


async def evaluate(
    id: str, model: models.Model, cases: Sequence[Case], presets: Iterable[Preset], advance: Callable[[], None]
) -> Evaluated:
    """Loads, measures and asks `model`; one example after the other, as requests would come."""
    scorer = models.load(model)
    try:
        measured = await scorer.measure(presets)
        verdicts = []
        for case in cases:
            readings = await scorer.decide(case.state, list(case.questions.values()))
            for name, reading in zip(case.questions, readings.reads, strict=True):
                verdicts.append(Verdict(case, name, distribution(reading, readings.temperature)))
            advance()
    finally:
        scorer.close()
    return Evaluated(id, measured, verdicts)


# --- tables ----------------------------------------------------------------------------------------------------------


def report(found: Sequence[Evaluated]) -> str:
    """Every table as Markdown."""
    return "\n\n".join(
        [overview(found), by_group(found, "questions", _kind), by_group(found, "of", _pack), released(found)]
    )


def _kind(verdict: Verdict) -> str:
    return verdict.question.type


def _pack(verdict: Verdict) -> str:
    return verdict.case.pack


def overview(found: Sequence[Evaluated]) -> str:
    """One row for each model."""
    lines = [
        "| model | questions | right | 95 % interval | calibration error | label mass | temperature |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found:
        low, high = interval(sum(v.right for v in one.verdicts), len(one.verdicts))
        error = calibration_error([v.judged for v in one.verdicts])
        mass = statistics.fmean(v.found.label_mass for v in one.verdicts)
        lines.append(
            f"| {one.model_id} | {len(one.verdicts)} | {_percent(_accuracy(one.verdicts))} | "
            f"{_percent(low)} to {_percent(high)} | {error:.2f} | {mass:.2f} | {one.measured.temperature:.2f} |"
        )
    return "\n".join(lines)


def by_group(found: Sequence[Evaluated], title: str, key: Callable[[Verdict], str]) -> str:
    """Accuracy by what `key` says, beside the two ways to answer without reading."""
    ids = [one.model_id for one in found]
    lines = [
        f"| {title} | asked | any option | most frequent answer | {' | '.join(ids)} |",
        "|---" * (4 + len(ids)) + "|",
    ]
    frequent = most_frequent(found[0].verdicts)
    groups = list(dict.fromkeys(map(key, found[0].verdicts)))
    for group in groups:
        rows = [[v for v in one.verdicts if key(v) == group] for one in found]
        first = rows[0]
        chance = statistics.fmean(1 / len(v.question.labels) for v in first)
        known = [v.expected == frequent[v.case.pack, v.name] for v in first if v.case.pack != OWN]
        majority = _percent(statistics.fmean(known)) if known else "-"
        cells = " | ".join(_percent(_accuracy(row)) for row in rows)
        lines.append(f"| {group} | {len(first)} | {_percent(chance)} | {majority} | {cells} |")
    return "\n".join(lines)


def most_frequent(verdicts: Sequence[Verdict]) -> dict[tuple[str, str], int]:
    """The answer of each preset's question that is expected most often here."""
    expected: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for verdict in verdicts:
        expected[verdict.case.pack, verdict.name][verdict.expected] += 1
    return {asked: counts.most_common(1)[0][0] for asked, counts in expected.items()}


def released(found: Sequence[Evaluated]) -> str:
    """What a policy with a threshold withholds, and how often the rest is right."""
    lines = [
        "| threshold | " + " | ".join(f"{one.model_id}: withheld | right of the rest" for one in found) + " |",
        "|---" * (1 + 2 * len(found)) + "|",
    ]
    for threshold in THRESHOLDS:
        policy = Policy(mode="threshold", threshold=threshold)
        cells = []
        for one in found:
            rest = [v for v in one.verdicts if not ABSTAINING & set(abstain_reasons(v.question, v.found, policy))]
            withheld = 1 - len(rest) / len(one.verdicts)
            cells += [_percent(withheld), f"{_percent(_accuracy(rest))} of {len(rest)}" if rest else "-"]
        lines.append(f"| {threshold} | {' | '.join(cells)} |")
    return "\n".join(lines)


def interval(right: int, asked: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share: where it lies if other examples of this kind had been drawn."""
    share, spread = right / asked, z * z / asked
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / asked + spread / (4 * asked)) / (1 + spread)
    return middle - half, middle + half


def _accuracy(verdicts: Sequence[Verdict]) -> float:
    return statistics.fmean(v.right for v in verdicts)


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def write(tables: str, file: Path = RESULTS) -> None:
    """Puts `tables` between the marks of `file`; what people wrote around them stays."""
    start, end = MARKS
    before, _, rest = file.read_text("utf-8").partition(start)
    _, _, after = rest.partition(end)
    file.write_text(f"{before}{start}\n\n{tables}\n\n{end}{after}", "utf-8")


# --- plot ------------------------------------------------------------------------------------------------------------


def draw(found: Sequence[Evaluated], file: Path = PLOT) -> None:
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


if __name__ == "__main__":
    main()
