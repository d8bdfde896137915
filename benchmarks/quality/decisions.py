"""How often the decision models of a profile are right, and how far their probabilities can be believed.

    python -m benchmarks.quality decisions --limit 20      a first look, in half a minute; writes nothing
    python -m benchmarks.quality decisions                 every example; writes the tables and the JSON
    python -m benchmarks.quality decisions --models decision-v2 --examples my.jsonl --limit 1000

Each model is loaded as a replica loads it, measured on the examples of the presets, from which its temperature comes,
and then asked about states that it was not fitted on: the lines of `benchmarks/quality/examples/decisions.jsonl`, whose
form `benchmarks/quality/examples` explains. The tables replace what is between two marks in
`benchmarks/quality/results/decisions.md`; `make docs` draws the plot from `decisions.json` beside it.
`docs/evaluation.md` explains both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from rich.progress import Progress

import configs
import models
from benchmarks.quality.examples import FILE, Case, load
from benchmarks.quality.verdicts import Evaluated, Verdict, report
from contract.catalog import Catalog, DecisionModel
from contract.decisions.answers import distribution
from contract.decisions.engine import DecisionJob
from contract.decisions.questions import Preset

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/quality/results/decisions.md"
JUDGED = RESULTS.with_suffix(".json")
"""For each model, pairs of confidence and rightness, in the order of the examples."""
MARKS = ("<!-- tables of evaluations.decisions -->", "<!-- end of the tables -->")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", default="embedded", choices=configs.PROFILES, help="whose models (embedded)")
    parser.add_argument("--models", nargs="+", metavar="ID", help="only these decision models")
    parser.add_argument(
        "--examples", type=Path, default=FILE, help="a file of your own, in the form of decisions.jsonl"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="only N examples, spread over the file; writes nothing")


def run(options: argparse.Namespace) -> None:
    """Prints the tables. Raises SystemExit for a model that the profile does not set up."""
    catalog = configs.load(options.profile)
    chosen = _models(catalog, options.models)
    cases = load(catalog.presets, options.examples)
    if options.limit:
        cases = cases[:: max(1, math.ceil(len(cases) / options.limit))]
    with Progress() as progress:
        results = []
        for model in chosen:
            task = progress.add_task(model.id, total=len(cases))
            evaluating = evaluate(model, cases, catalog.presets.values(), partial(progress.advance, task))
            results.append(asyncio.run(evaluating))
    print(tables := report(results))
    if not options.limit and options.examples == FILE and not options.models:
        write(tables, RESULTS)
        keep(results, JUDGED)


def _models(catalog: Catalog, ids: list[str] | None) -> list[DecisionModel]:
    offered = {id: model for id, model in catalog.decisions.items() if model.serving}
    if unknown := set(ids or ()) - set(offered):
        raise SystemExit(f"there is no decision model {', '.join(sorted(unknown))}; there are {', '.join(offered)}")
    return [offered[id] for id in ids or offered]


async def evaluate(
    model: DecisionModel, cases: Sequence[Case], presets: Iterable[Preset], advance: Callable[[], None]
) -> Evaluated:
    """Loads, measures and asks `model`; one example after the other, as requests would come."""
    with closing(models.load(model)) as scorer:
        measured = await scorer.measure(presets)
        verdicts = []
        for case in cases:
            readings = await scorer.decide(DecisionJob(case.state, tuple(case.questions.values())))
            for name, reading in zip(case.questions, readings.reads, strict=True):
                verdicts.append(Verdict(case, name, distribution(reading, readings.temperature)))
            advance()
    return Evaluated(model.id, measured, verdicts)


def keep(results: Sequence[Evaluated], file: Path) -> None:
    """Writes what the plot is drawn from, a line for each model."""
    lines = (
        f"{json.dumps(each.model_id)}: {json.dumps([(round(sure, 4), int(right)) for sure, right in pairs])}"
        for each in results
        if (pairs := [verdict.judged for verdict in each.verdicts])
    )
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def write(tables: str, file: Path) -> None:
    """Puts `tables` between the marks of `file`; what people wrote around them stays."""
    start, end = MARKS
    before, _, rest = file.read_text("utf-8").partition(start)
    _, _, after = rest.partition(end)
    file.write_text(f"{before}{start}\n\n{tables}\n\n{end}{after}", "utf-8")
