"""Links lead somewhere, and files that pages name exist. The annotated tree of the README names nothing else.

Each term of the glossary occurs in the file where it is said to live.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from contract.transcription.uploads import RECORDING_TYPES
from tests.docs.pages import PAGES, README, ROOT, anchors, prose

LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
FOLDERS = (
    "audio",
    "autoscaling",
    "benchmarks",
    "cluster",
    "concurrency",
    "configs",
    "contract",
    "deployments",
    "docs",
    "launch",
    "models",
    "requirements",
    "state",
    "tests",
)
FILE = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*|[\w-]+\.(?:py|toml|md|yaml|lock)|Makefile|LICENSE)`")
MADE_LATER = {"var/", "weights.toml", "models/letters.py", *RECORDING_TYPES}
"""Media types look like files of the folder `audio`."""
GLOSSARY = ROOT / "docs/glossary.md"
TREE = re.compile(r"^```text\n(graph\.py .*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if target.startswith("https://"):
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not fragment or fragment in anchors(file), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    everywhere = {file.name for file in _files()}
    for name in FILE.findall(prose(page)):
        if name in MADE_LATER:
            continue
        found = (ROOT / name).exists() if "/" in name else name in everywhere
        assert found, f"{page.name} names `{name}`"


def test_tree_names_only_what_exists() -> None:
    (tree,) = TREE.findall(README.read_text("utf-8"))
    folder = ROOT
    for line in tree.splitlines():
        names, comment = re.match(r" {0,2}(\S+(?: \S+)*)(?: {2,}(.*))?$", line).groups()  # type: ignore[union-attr]
        assert comment, f"the tree says nothing of {names}"
        if not line.startswith(" "):
            folder = ROOT
        for name in names.split():
            assert (folder / name).exists(), f"the tree names {name} in {folder.name}"
        if not line.startswith(" ") and names.endswith("/"):
            folder = ROOT / names


def test_tree_names_every_folder() -> None:
    (tree,) = TREE.findall(README.read_text("utf-8"))
    missing = {f"{name}/" for name in FOLDERS} - set(re.findall(r"^\S+/", tree, re.MULTILINE))
    assert not missing


def test_every_decision_is_numbered_once_and_linked() -> None:
    files = sorted(file.name for file in (ROOT / "docs/decisions").glob("*.md"))
    assert [int(name[:4]) for name in files] == list(range(1, len(files) + 1))
    for name in files:
        assert f"(decisions/{name})" in (ROOT / "docs/README.md").read_text("utf-8"), (
            f"docs/README.md does not link {name}"
        )


def test_the_index_links_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text("utf-8")
    assert [
        page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md" and f"({page.name})" not in index
    ] == []


def test_terms_of_the_glossary_live_where_it_says() -> None:
    rows = [line.split("|") for line in GLOSSARY.read_text("utf-8").splitlines() if line.startswith("| **")]
    assert len(rows) >= 30
    for _, terms, standard, meaning, where, _ in rows:
        (name,) = FILE.findall(where)
        text = _words((ROOT / name).read_text("utf-8"))
        missing = [term for term in re.findall(r"\*\*([^*]+)\*\*", terms) if _words(term) not in text]
        assert not missing, f"{name} does not have {missing}"
        assert standard.strip()
        assert meaning.strip()


def _words(text: str) -> str:
    """`text` in lower case, with identifiers taken apart: `FairQueue` and `fair_queue` are `fair queue`."""
    return re.sub(r"[\W_]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)).lower().strip()


def _files() -> list[Path]:
    return [file for folder in FOLDERS for file in (ROOT / folder).rglob("*")] + list(ROOT.iterdir())
