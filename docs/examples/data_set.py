"""A language model over a data set: a CSV, JSONL or Parquet file goes in, a line of JSON for each row comes out.

    python -m docs.examples.data_set reviews.csv answers.jsonl --prompt "Is this positive or negative? {text}"

At most so many calls are under way (`--in-flight`), so neither the graph nor this process fills up. Each answer is
written as it comes: a run that was killed goes on where it was when it is started again. A call that fails is a line
with `error`, and is tried again by the next run. Without arguments it asks about three cities.

Parquet needs the environment of `make setup-batch`: `.venv/batch/bin/python` in place of `.venv/bin/python`. For data
sets that no single process should read, take `batch.py`, which needs no running graph.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from rich.progress import Progress

MODEL = "qwen2.5-coder-0.5b-instruct"
Row = dict[str, str]
Ask = Callable[[str], Awaitable[str]]
"""A prompt to its answer."""


class DataSetError(Exception):
    """A file that cannot be used; the sentence says which line and why."""


def read(file: Path, id_column: str) -> dict[str, Row]:
    """Rows by their ids. Raises DataSetError."""
    rows: dict[str, Row] = {}
    try:
        for number, row in enumerate(_parsed(file), 1):
            if not isinstance(row, dict) or id_column not in row:
                raise DataSetError(f"{file.name}, row {number}: there is no `{id_column}`; choose another with --id")
            if (id := str(row[id_column])) in rows:
                raise DataSetError(f"{file.name}, row {number}: the id `{id}` is there twice")
            rows[id] = row
    except ImportError:
        raise DataSetError(f"{file.name} needs pyarrow: make setup-batch, then .venv/batch/bin/python") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataSetError(f"{file.name} cannot be read as UTF-8 {file.suffix.lstrip('.')}: {error}") from None
    if not rows:
        raise DataSetError(f"{file.name} has no rows")
    return rows


def _parsed(file: Path) -> Iterator[Row]:
    if file.suffix == ".parquet":
        from pyarrow import parquet

        yield from parquet.read_table(file).to_pylist()
        return
    with file.open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines) if file.suffix == ".csv" else (json.loads(line) for line in lines)


def answered(file: Path) -> set[str]:
    """Ids that an earlier run has answered. A last line that was cut in the middle is taken away."""
    if not file.exists():
        return set()
    whole, _, _ = file.read_bytes().rpartition(b"\n")
    file.write_bytes(whole + b"\n" if whole else b"")
    lines = [json.loads(line) for line in whole.splitlines()]
    return {line["id"] for line in lines if "error" not in line}


async def run(rows: dict[str, Row], prompt: str, out: Path, ask: Ask, in_flight: int) -> tuple[int, int]:
    """Asks for each row that is not answered yet. Returns how many were answered and how many failed."""
    before = answered(out)
    open_rows = {id: row for id, row in rows.items() if id not in before}
    failed, slots = 0, asyncio.Semaphore(in_flight)

    async def answer(id: str, row: Row) -> None:
        nonlocal failed
        async with slots:
            try:
                line = {"id": id, "answer": await ask(prompt.format_map(row))}
            except Exception as error:  # one bad row must not end the others
                failed, line = failed + 1, {"id": id, "error": f"{type(error).__name__}: {error}"}
        lines.write(json.dumps(line, ensure_ascii=False) + "\n")
        lines.flush()
        progress.advance(bar)

    with out.open("a", encoding="utf-8") as lines, Progress(disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("asking", total=len(open_rows))
        async with asyncio.TaskGroup() as group:
            for id, row in open_rows.items():
                group.create_task(answer(id, row))
    return len(open_rows) - failed, failed


def of_graph(model: str, max_tokens: int) -> Ask:
    """Asks the running graph by its handle, without HTTP."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_AUTH_TOKEN_PATH", "var/ray_token")
    from graph import connect

    chat = connect().chat[model]

    async def ask(prompt: str) -> str:
        reply = await chat.submit(prompt, temperature=0, max_tokens=max_tokens)
        return str(reply.text)

    return ask


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "data", nargs="?", type=Path, help="CSV with a header, a JSON object on each line (.jsonl), or .parquet"
    )
    parser.add_argument("out", nargs="?", type=Path, help="file to write or to go on with")
    parser.add_argument(
        "--prompt", default="Name the capital of {text}.", help="with {COLUMN} in the places of columns"
    )
    parser.add_argument("--id", default="id", metavar="COLUMN", help="what tells rows apart (default: id)")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--in-flight", type=int, default=16, help="calls under way at the same time (default: 16)")
    options = parser.parse_args()
    data, out = options.data, options.out or Path("var/examples/answers.jsonl")
    if data is None:
        data = Path("var/examples/countries.csv")
        data.parent.mkdir(parents=True, exist_ok=True)
        data.write_text("id,text\n1,France\n2,Italy\n3,Japan\n")
    try:
        rows = read(data, options.id)
        (options.prompt.format_map(next(iter(rows.values()))))
    except DataSetError as error:
        sys.exit(str(error))
    except (KeyError, IndexError, ValueError) as error:
        sys.exit(f"--prompt names {error}, which is no column of {data.name}")
    ask = of_graph(options.model, options.max_tokens)
    done, failed = asyncio.run(run(rows, options.prompt, out, ask, options.in_flight))
    print(f"{done} answered, {failed} failed, {len(rows) - done - failed} were there already: {out}")


if __name__ == "__main__":
    main()
