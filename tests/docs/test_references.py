"""Links, pictures, files, folders, tests and attacks that pages refer to are there."""

import re
from pathlib import Path
from typing import get_args

import benchmarks.attacks.__main__  # noqa: F401  # fills the list
from benchmarks.attacks.attack import ATTACKS
from contract.realtime.session import AudioFormat
from contract.transcription.uploads import RECORDING_TYPES
from tests.docs.pages import FENCE, PAGES, ROOMS, ROOT, anchors, prose, tables

LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
FOLDERS = (*ROOMS, "cluster", "requirements", "tests")
FILE = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*|[\w-]+\.(?:py|toml|md|yaml|lock)|Makefile|LICENSE)`")
MADE_LATER = {"var/", "clips.toml", "weights.toml", "models/letters.py"}
MEDIA_TYPES = {
    *RECORDING_TYPES,
    *get_args(AudioFormat.model_fields["type"].annotation),
    "text/event-stream",
    "text/plain",
    "text/vtt",
}
"""They look like files of the folders `audio` and `text`."""
PICTURE = re.compile(
    r'<picture>\n  <source media="\(prefers-color-scheme: dark\)" srcset="(\S+)-dark\.(?:svg|png)">\n'
    r'  <img alt="([^"]{40,})"\s+src="\1-light\.(?:svg|png)">\n</picture>'
)
SHOWS = re.compile(r"<img|!\[")
SHOWING = (*PAGES, *sorted(ROOT.glob("benchmarks/*/results/*.md")))
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


def test_named_files_exist() -> None:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*")] + list(ROOT.iterdir())
    everywhere = {file.name for file in files}
    names = [(page, name) for page in PAGES for name in FILE.findall(prose(page))]
    assert [
        f"{page.name} names `{name}`"
        for page, name in names
        if name not in MADE_LATER | MEDIA_TYPES and not ((ROOT / name).exists() if "/" in name else name in everywhere)
    ] == []


def test_the_index_links_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text("utf-8")
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if ROOT / "docs" in page.parents}
    assert sorted(name for name in pages - {"README.md"} if f"({name})" not in index) == []


def test_the_threat_model_names_tests_and_attacks_that_are_there_and_every_attack() -> None:
    assert len(THREATS) == 7
    shown = {name for table in THREATS for row in table for name in row[-1].split(", ")}
    files = (ROOT / "tests").rglob("test_*.py")
    tests = {name for file in files for name in DEFINED.findall(file.read_text("utf-8"))}
    of_campaigns = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/reliability.md").read_text("utf-8")))
    assert ({name for name in shown if name.startswith("test_")} | of_campaigns) - tests == set()
    assert {name for name in shown if not name.startswith("test_")} == set(ATTACKS)
