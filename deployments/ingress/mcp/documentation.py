"""Finds and reads the documentation: the README, the changelog and `docs/`, as they lie beside the code.

    Documentation(root).search("why is the first answer slow")  -> sections, best first
    Documentation(root).read("docs/api.md#errors")              -> Markdown

The index is SQLite's full text search in memory: a row for each section, ranked by bm25 over English word stems. It is
built by the first search, in a thread, and no model is asked.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

WEIGHTS = (4.0, 8.0, 1.0)
"""Of a word in the title of the page, in the headings above it, and in the text."""

EXCERPT_TOKENS = 60

_WORD = re.compile(r"\w+")

COMMON = frozenset(
    _WORD.findall(
        "a about after all am an and any are as at be because been but by can cannot could did do does doing don for "
        "from get give had has have how i if in into is isn it its just like make me my need no not of on one or our "
        "out over own please s same say see should so some t than that the their them then there these they this those "
        "to too use used using want was way we were what when where which while who why will with without work works "
        "would you your"
    )
)
"""Words of questions that say nothing about the answer."""

_HEADING = re.compile(r"(#{1,6}) +(.+?) *#* *")
_FENCE = re.compile(r" *(```|~~~)")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it, up to the next heading.

    Attributes:
        page: path of the file from the root.
        headings: from the title of the page down to this one.
        anchor: fragment of links to it; empty for what stands before the first heading.
        text: Markdown, with the heading.
    """

    page: str
    headings: tuple[str, ...]
    anchor: str
    text: str

    @property
    def id(self) -> str:
        """What `read` takes."""
        return f"{self.page}#{self.anchor}" if self.anchor else self.page


@dataclass(frozen=True, slots=True)
class Found:
    """A section that fits a query, and the part of it that fits best, as plain text."""

    id: str
    title: str
    excerpt: str


class Documentation:
    """The pages under `root`. Any thread and any task may ask it."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._index: _Index | None = None

    async def search(self, query: str, count: int) -> list[Found]:
        """At most `count` sections that have a word of `query`, best first. Any text is a query."""
        return await asyncio.to_thread(lambda: self._loaded().search(query, count))

    async def read(self, id: str) -> str | None:
        """The Markdown of a page or a section, None where there is no such. No file is opened for a client."""
        return await asyncio.to_thread(lambda: self._loaded().texts.get(id))

    def _loaded(self) -> _Index:
        with self._lock:
            if self._index is None:
                self._index = _Index(list(_pages(self._root)))
            return self._index


class _Index:
    """Sections in memory. `texts` has each page and each section by its id."""

    def __init__(self, pages: list[tuple[str, str]]) -> None:
        self.texts = dict(pages)
        # SQLite itself serialises calls of several threads on one connection.
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute(
            "CREATE VIRTUAL TABLE sections USING fts5(id UNINDEXED, title, headings, text, tokenize='porter unicode61')"
        )
        for page, text in pages:
            for section in sections(page, text):
                self.texts.setdefault(section.id, section.text)
                row = (section.id, section.headings[0], " > ".join(section.headings[1:]), section.text)
                self._database.execute("INSERT INTO sections VALUES (?, ?, ?, ?)", row)

    def search(self, query: str, count: int) -> list[Found]:
        words = significant_words(query)
        if not words:
            return []
        rows = self._database.execute(
            "SELECT id, title, headings, snippet(sections, 3, '', '', ' … ', ?) FROM sections WHERE sections MATCH ? "
            "ORDER BY bm25(sections, 0, ?, ?, ?), rowid LIMIT ?",
            # Quoted, a word is never an operator of the query language.
            (EXCERPT_TOKENS, " OR ".join(f'"{word}"' for word in words), *WEIGHTS, count),
        )
        return [
            Found(id, f"{title} > {headings}" if headings else title, " ".join(text.split()))
            for id, title, headings, text in rows
        ]


def significant_words(query: str) -> list[str]:
    """Each word once, in lower case, without COMMON ones unless there are no others."""
    words = list(dict.fromkeys(_WORD.findall(query.lower())))
    return [word for word in words if word not in COMMON] or words


def sections(page: str, text: str) -> Iterator[Section]:
    """The sections of a page, in order. Lines of code that begin with `#` are no headings."""
    path: list[tuple[int, str]] = []
    lines: list[str] = []
    anchor, anchors, fenced = "", dict[str, int](), ""
    for line in text.splitlines():
        if fence := _FENCE.match(line):
            fenced = "" if fenced == fence[1] else fenced or fence[1]
        heading = None if fenced else _HEADING.fullmatch(line)
        if heading:
            yield from _section(page, path, anchor, lines)
            path = _beneath(path, len(heading[1]), heading[2])
            anchor, lines = _anchor(heading[2], anchors), []
        lines.append(line)
    yield from _section(page, path, anchor, lines)


def _beneath(path: list[tuple[int, str]], level: int, heading: str) -> list[tuple[int, str]]:
    """The headings above a new one, and that one."""
    return [*((above, text) for above, text in path if above < level), (level, heading)]


def _section(page: str, path: list[tuple[int, str]], anchor: str, lines: list[str]) -> Iterator[Section]:
    text = "\n".join(lines).strip()
    if text:
        yield Section(page, tuple(heading for _, heading in path) or (page,), anchor, text)


def _anchor(heading: str, taken: dict[str, int]) -> str:
    """As GitHub makes it: the second of two equal ones ends with `-1`."""
    plain = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
    number = taken[plain] = taken.get(plain, -1) + 1
    return f"{plain}-{number}" if number else plain


def _pages(root: Path) -> Iterator[tuple[str, str]]:
    """Path and text of each page, those for readers before those about decisions."""
    files = [root / "README.md", *sorted((root / "docs").rglob("*.md")), root / "CHANGELOG.md"]
    for file in files:
        if file.is_file():
            yield file.relative_to(root).as_posix(), file.read_text("utf-8")
