"""Every command that a page in `docs/` shows is run, or says why not.

Pages are read from top to bottom: what a block leaves behind in `var/`, the next one finds. Other marks are read by
`test_models_and_engines.py` and `test_python_client.py`; examples of the reference by `test_made_pages.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.answers import check_answer
from tests.docs.conftest import Reader
from tests.docs.pages import ROOT, examples

NAMES = """
clients cluster concepts given-a-key live-sessions migrating models-and-engines one-gpu operating python-client
measurements README troubleshooting users-and-budgets what-is-stored
"""
PAGES = [ROOT / "SECURITY.md", *(ROOT / f"docs/{name}.md" for name in NAMES.split())]
COMMANDS = re.compile(r"^(?:(<!-- [^\n]* -->)\n)?```(?:bash|sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARKS = re.compile(
    r"<!-- (?:run|run on a graph|run with handles|run without Ray|run on (?:two nodes|three machines): \w+"
    r"|adapter of \w+|not run: .+) -->"
)
MAKE = re.compile(r"^(?:\w+=\S+ )*make (\w[\w-]*)", re.MULTILINE)


def test_commands_are_run_or_say_why_not_and_make_has_the_targets() -> None:
    targets = re.findall(r"^([\w-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for page in PAGES:
        text = page.read_text("utf-8")
        for mark, code in COMMANDS.findall(text):
            assert MARKS.fullmatch(mark), f"{page.name} does not say whether this is run:\n{code}"
        assert set(MAKE.findall(text)) <= set(targets), page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_do_what_the_page_says(reader: Reader, page: Path) -> None:
    for example in examples(page):
        if example.on_a_graph:
            continue
        done = reader.paste(example)
        assert done.returncode == 0, f"{example.code}\n{done.stdout}{done.stderr}"
        if example.answer is not None:
            check_answer(done.stdout, example.answer)
    copies = [reader.folder / "var/backup.db", *(reader.folder / "var/restored").rglob("*")]
    assert not [path for path in copies if path.exists() and path.stat().st_mode & 0o077]
