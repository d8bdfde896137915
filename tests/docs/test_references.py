"""What pages refer to is there: links, pictures, files, folders, terms of the glossary, tests and attacks.

The dark picture of a pair says the same as the light one.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import benchmarks.attacks.__main__  # noqa: F401  # fills the list
from benchmarks.attacks.attack import ATTACKS
from contract.realtime.session import FORMATS
from contract.transcription.uploads import RECORDING_TYPES
from tests.docs.pages import FENCE, PAGES, ROOMS, ROOT, anchors, prose, tables

LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
FOLDERS = (*ROOMS, "cluster", "requirements", "tests")
FILE = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*|[\w-]+\.(?:py|toml|md|yaml|lock)|Makefile|LICENSE)`")
MADE_LATER = {"var/", "clips.toml", "weights.toml", "models/letters.py"}
MEDIA_TYPES = {*RECORDING_TYPES, *FORMATS, "text/event-stream", "text/plain", "text/vtt"}
"""They look like files of the folders `audio` and `text`."""
PICTURE = re.compile(
    r'<picture>\n  <source media="\(prefers-color-scheme: dark\)" srcset="(\S+)-dark\.(?:svg|png)">\n'
    r'  <img alt="([^"]{40,})"\s+src="\1-light\.(?:svg|png)">\n</picture>'
)
SHOWS = re.compile(r"<img|!\[")
SHOWING = (*PAGES, *sorted(ROOT.glob("benchmarks/*/results/*.md")))
LIGHT = sorted((ROOT / "docs/images").glob("*-light.svg"))
COLOUR = re.compile(r"#[0-9a-f]{6}")
(TREE,) = re.findall(
    r"^```text\n(graph\.py .*?)^```$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
)
THREATS = tables(ROOT / "docs/threat-model.md", "tried")
DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, fragment = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    return target.startswith("https://") or (file.exists() and (not fragment or fragment in anchors(file)))


def test_links_lead_somewhere() -> None:
    links = [(page, target) for page in PAGES for target in LINK.findall(prose(page))]
    assert [f"{page.name} links to {target}" for page, target in links if not leads_somewhere(page, target)] == []


def test_a_picture_is_shown_in_two_themes_and_in_words() -> None:
    for page in SHOWING:
        text = FENCE.sub("", page.read_text("utf-8"))
        pictures = PICTURE.findall(text)
        assert len(SHOWS.findall(text)) == len(pictures), page.name
        for name, _ in pictures:
            for theme in ("light", "dark"):
                assert list(page.parent.glob(f"{name}-{theme}.*")), f"{page.name} shows {name}-{theme}"


def test_every_picture_is_shown_somewhere() -> None:
    shown = {Path(name).name for page in SHOWING for name, _ in PICTURE.findall(page.read_text("utf-8"))}
    assert shown == {light.name.removesuffix("-light.svg") for light in LIGHT} | {"console", "observability"}


def test_a_pair_differs_in_colours_only_and_can_be_read_aloud() -> None:
    for light in LIGHT:
        pair = [file.read_text("utf-8") for file in (light, light.with_name(light.name.replace("light", "dark")))]
        assert COLOUR.sub("", pair[0]) == COLOUR.sub("", pair[1]), light.name
        assert COLOUR.findall(pair[0]) != COLOUR.findall(pair[1]), light.name
        tags = {child.tag.rpartition("}")[2] for child in ElementTree.parse(light).getroot()}
        assert {"title", "desc"} <= tags, light.name


def test_named_files_exist() -> None:
    everywhere = {file.name for file in _files()}
    names = [(page, name) for page in PAGES for name in FILE.findall(prose(page))]
    assert [
        f"{page.name} names `{name}`"
        for page, name in names
        if name not in MADE_LATER | MEDIA_TYPES and not ((ROOT / name).exists() if "/" in name else name in everywhere)
    ] == []


def test_tree_names_only_what_exists() -> None:
    folder = ROOT
    for line in TREE.splitlines():
        names, comment = re.match(r" {0,2}(\S+(?: \S+)*)(?: {2,}(.*))?$", line).groups()  # type: ignore[union-attr]
        assert comment, f"the tree says nothing of {names}"
        if not line.startswith(" "):
            folder = ROOT
        for name in names.split():
            assert (folder / name).exists(), f"the tree names {name} in {folder.name}"
        if not line.startswith(" ") and names.endswith("/"):
            folder = ROOT / names


def test_tree_names_every_folder() -> None:
    missing = {f"{name}/" for name in FOLDERS} - set(re.findall(r"^\S+/", TREE, re.MULTILINE))
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
    rows = [row for table in tables(ROOT / "docs/glossary.md", "term") for row in table]
    assert len(rows) >= 30
    for terms, standard, meaning, where in rows:
        text = _words((ROOT / where).read_text("utf-8"))
        missing = [term for term in re.findall(r"\*\*([^*]+)\*\*", terms) if _words(term) not in text]
        assert not missing, f"{where} does not have {missing}"
        assert standard
        assert meaning


def test_the_threat_model_names_tests_and_attacks_that_are_there_and_every_attack() -> None:
    assert len(THREATS) == 7
    shown = {name for table in THREATS for row in table for name in row[-1].split(", ")}
    files = (ROOT / "tests").rglob("test_*.py")
    tests = {name for file in files for name in DEFINED.findall(file.read_text("utf-8"))}
    of_campaigns = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/reliability.md").read_text("utf-8")))
    assert ({name for name in shown if name.startswith("test_")} | of_campaigns) - tests == set()
    assert {name for name in shown if not name.startswith("test_")} == set(ATTACKS)


def _words(text: str) -> str:
    """`text` in lower case, with identifiers taken apart: `FairQueue` and `fair_queue` are `fair queue`."""
    return re.sub(r"[\W_]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)).lower().strip()


def _files() -> list[Path]:
    return [file for folder in FOLDERS for file in (ROOT / folder).rglob("*")] + list(ROOT.iterdir())
