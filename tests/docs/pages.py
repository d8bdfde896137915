"""Pages of documentation as data: tables, headings, code blocks, and what a block does when it is run."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
API = ROOT / "docs/api.md"
ROOMS = sorted({file.parent.name for file in ROOT.glob("*/__init__.py")} - {"tests"})
PAGES = (
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARKED = re.compile(r"^<!-- (run|run on a graph|answer) -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A code block that is run, and the answer that the page shows; None where it shows none."""

    language: str
    code: str
    answer: str | None
    on_a_graph: bool = False
    """Whether it wants engines that are real, behind Ray."""

    @property
    def title(self) -> str:
        """First line of the code that says something."""
        return next(line for line in self.code.splitlines() if line.strip())[:50]

    def run(self, url: str, folder: Path, limit_s: float, **environment: str) -> subprocess.CompletedProcess[str]:
        """What comes of it where somebody pastes it in `folder`, with a server at `url`. The shell ends at an error."""
        code = self.code.replace("http://127.0.0.1:8000", url).replace(".venv/bin/python", sys.executable)
        command = [sys.executable, "-c"] if self.language == "python" else ["bash", "-euo", "pipefail", "-c"]
        return subprocess.run(
            [*command, code], cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=limit_s
        )


def examples(page: Path) -> list[Example]:
    """Blocks under `<!-- run -->` and `<!-- run on a graph -->`, each with that under `<!-- answer -->` after it."""
    found: list[Example] = []
    for kind, language, text in MARKED.findall(page.read_text("utf-8")):
        if kind != "answer":
            found.append(Example(language, text, None, kind != "run"))
        else:
            assert found, f"{page.name} shows an answer before it runs anything"
            assert found[-1].answer is None, f"{page.name} shows two answers after `{found[-1].title}`"
            found[-1] = replace(found[-1], answer=text)
    return found


def marked(page: Path, mark: str) -> str:
    """The one block under `<!-- mark -->`."""
    (code,) = re.findall(rf"^<!-- {mark} -->\n```\w+\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return str(code)


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return FENCE.sub("", page.read_text("utf-8"))


def tables(page: Path, *header: str) -> list[list[list[str]]]:
    """Rows of cells, without backticks, of each table whose first columns are `header`."""
    found = re.findall(r"(?:^\|.*\|$\n?)+", page.read_text("utf-8"), re.MULTILINE)
    split = [[_cells(line) for line in table.strip().splitlines()] for table in found]
    return [lines[2:] for lines in split if lines[0][: len(header)] == list(header)]


def rows(page: Path, *header: str) -> list[list[str]]:
    """Those of the one table with this header."""
    (table,) = tables(page, *header)
    return table


def anchors(page: Path) -> set[str]:
    """Fragments that links to this page may have, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
