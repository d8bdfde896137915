"""Counts the size of the tree and the wording of the product, and fails where a count is above its ceiling.

    python requirements/house.py        prints the table (`make check` runs it)
    python requirements/house.py -v     lists the places behind the counts, too

Ceilings only move down: a change that adds code removes as much elsewhere, or a page in docs/decisions says why not.
A line counts as code unless it is blank, a comment, or part of a docstring or an import.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

CODE_LINES = {
    "contract": 5890,
    "models": 6644,
    "deployments": 5857,
    "state": 4266,
    "autoscaling": 2067,
    "text": 1109,
    "audio": 880,
    "launch": 1077,
    "concurrency": 470,
    "configs": 247,
    "graph.py": 52,
    "benchmarks/capacity": 806,
}
BESIDE = {
    "lines of tests": ("tests", "", 64106),
    "lines of benchmarks": ("benchmarks", ".py", 10797),
    "words in Markdown": ("", ".md", 69733),
}
"""Folder, ending of the files, and ceiling of each count."""
WORDING = {
    "docstrings that begin with a clause": 0,
    "words with a standard term": 17,
    "names that do not say what they hold": 0,
    "class names used twice": 0,
}
FILE_LINES = 400
FUNCTION_LINES = 60

CLAUSE = re.compile(r"(What|Who|Whose|Whom|Whether|Where|How|When|That|Why|Which)\b")
REPLACEABLE = re.compile(
    r"\b(tells?|told|hears?|heard|ears?|whose|somebody|nobody|whoever|everybody|strangers?|so many|so much|so long"
    r"|so often|goes on|by now|anew|ours|theirs)\b",
    re.IGNORECASE,
)
"""Each has a standard term in docs/glossary.md."""
FILLERS = {"asked", "found", "given", "heard", "held", "kept", "made", "one", "said", "told"}
"""No variable, argument, function or class is called one of these: a noun says more."""

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class File(NamedTuple):
    """A file of the product, parsed."""

    name: str
    source: str
    tree: ast.Module

    @property
    def room(self) -> str:
        return next(room for room in CODE_LINES if is_in(self.name, room))


@cache
def names() -> list[str]:
    """The files that git does not ignore, by their paths from the root."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in output.splitlines() if (ROOT / name).is_file()]


def product() -> Iterator[File]:
    """The files of the rooms that have a ceiling."""
    for name in names():
        if name.endswith(".py") and any(is_in(name, room) for room in CODE_LINES):
            source = (ROOT / name).read_text("utf-8")
            yield File(name, source, ast.parse(source))


def beside() -> Iterator[tuple[str, int, int]]:
    """Counts of what stands beside the product, with their ceilings."""
    for kind, (place, suffix, ceiling) in BESIDE.items():
        files = [ROOT / name for name in names() if name.endswith(suffix) and (not place or is_in(name, place))]
        texts = (file.read_bytes() for file in files)
        yield kind, sum(len(text.split()) if "words" in kind else text.count(b"\n") for text in texts), ceiling


def is_in(name: str, room: str) -> bool:
    """Says if the path `name` is `room` or lies below it."""
    return name == room or name.startswith(f"{room}/")


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Strings that stand as statements, those below attributes included."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as text):
                yield text


def code_lines(file: File) -> int:
    """Number of lines that are neither blank, comment, docstring nor import."""
    imports = (node for node in ast.walk(file.tree) if isinstance(node, ast.Import | ast.ImportFrom))
    left_out = {line for node in (*docstrings(file.tree), *imports) for line in lines_of(node)}
    tokens = tokenize.generate_tokens(iter(file.source.splitlines(keepends=True)).__next__)
    code = {line for t in tokens if t.type not in LAYOUT for line in range(t.start[0], t.end[0] + 1)}
    return len(code - left_out)


def lines_of(node: ast.stmt | ast.expr) -> range:
    """Numbers of the lines that a node spans."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def wording(files: list[File]) -> dict[str, list[str]]:
    """Places of each kind that `WORDING` bounds."""
    places = defaultdict(list)
    classes: Counter[str] = Counter()
    for file in files:
        for text in docstrings(file.tree):
            if CLAUSE.match(str(text.value)):
                places["docstrings that begin with a clause"].append(f"{file.name}:{text.lineno}")
        for node in ast.walk(file.tree):
            match node:
                case ast.Constant(value=str() as text):
                    hits = REPLACEABLE.findall(text)
                    places["words with a standard term"] += [f"{file.name}:{node.lineno} {hit}" for hit in hits]
                case (
                    ast.Name(id=name, ctx=ast.Store())
                    | ast.arg(arg=name)
                    | ast.FunctionDef(name=name)
                    | ast.AsyncFunctionDef(name=name)
                    | ast.ClassDef(name=name)
                ):
                    if name.strip("_").lower() in FILLERS:
                        places["names that do not say what they hold"].append(f"{file.name}:{node.lineno} {name}")
                    classes[name] += isinstance(node, ast.ClassDef)
    places["class names used twice"] = [name for name, times in classes.items() if times > 1]
    return places


def long(files: list[File]) -> list[str]:
    """Files and functions that are longer than they may be."""
    files_ = [f"{file.name}: {n} lines" for file in files if (n := len(file.source.splitlines())) > FILE_LINES]
    functions = [
        f"{file.name}:{node.lineno} {node.name}: {len(lines_of(node))} lines"
        for file in files
        for node in ast.walk(file.tree)
        if isinstance(node, DEFINITIONS[:2]) and len(lines_of(node)) > FUNCTION_LINES
    ]
    return files_ + functions


def main() -> int:
    """Prints the table; returns 1 where a count is above its ceiling."""
    files = list(product())
    by_room: Counter[str] = Counter()
    for file in files:
        by_room[file.room] += code_lines(file)
    places = wording(files)
    rows = [(f"code lines: {room}", by_room[room], ceiling) for room, ceiling in CODE_LINES.items()]
    rows += [("code lines: all", by_room.total(), sum(CODE_LINES.values()))]
    rows += beside()
    rows += [(kind, len(places[kind]), ceiling) for kind, ceiling in WORDING.items()]
    for kind, count, ceiling in rows:
        print(f"{kind:<40} {count:>6} of {ceiling:>6}{'  ABOVE' if count > ceiling else ''}")
    print(f"lines in all: {sum(len(file.source.splitlines()) for file in files)} in {len(files)} files")
    too_long = long(files)
    print(*too_long, sep="\n", end="\n" if too_long else "")
    if "-v" in sys.argv[1:]:
        print(*(f"{kind}: {place}" for kind in WORDING for place in places[kind]), sep="\n")
    return int(bool(too_long) or any(count > ceiling for _, count, ceiling in rows))


if __name__ == "__main__":
    sys.exit(main())
