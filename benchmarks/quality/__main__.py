"""Judges the quality of answers, one evaluation at a time.

python -m benchmarks.quality decisions --limit 20
python -m benchmarks.quality NAME --help
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.quality import chat, decisions, injections, live, similarity, spoken, transcription

EVALUATIONS = {
    "chat": chat,
    "decisions": decisions,
    "similarity": similarity,
    "injections": injections,
    "transcription": transcription,
    "spoken": spoken,
    "live": live,
}


def main(arguments: Sequence[str] | None = None) -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__, formatter_class=form)
    names = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, evaluation in EVALUATIONS.items():
        text = evaluation.__doc__ or ""
        evaluation.add_arguments(
            names.add_parser(name, help=text.splitlines()[0], description=text, formatter_class=form)
        )
    options = parser.parse_args(arguments)
    EVALUATIONS[options.name].run(options)


if __name__ == "__main__":
    main()
