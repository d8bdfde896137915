"""Finds and reads the documentation: the README, SECURITY, the changelog and `docs/`, as they lie beside the code.

    Documentation(root).search("why is the first answer slow")  -> sections, best first
    Documentation(root).read("docs/api.md#errors")              -> Markdown

The index is SQLite's full text search in memory: a row for each passage of a section, ranked by bm25 over English word
stems. It is built by the first search, in a thread, and no model is asked.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

R = TypeVar("R")

ROOT = Path(__file__).resolve().parents[3]

PASSAGE_CHARS = 800
"""Paragraphs are taken together up to here: the few lines that answer weigh little among those of a long section."""

WEIGHTS = (2.0, 3.0, 1.0)
"""Of a word in the title of the page, in the headings above it, and in the text."""

SECONDARY_WEIGHT = 0.7
"""Weight of a passage of ASIDE_PAGES against one that explains how things are today."""
ASIDE_PAGES = ("docs/decisions/", "docs/glossary.md", "CHANGELOG.md")

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
        """Id that `read` takes."""
        return f"{self.page}#{self.anchor}" if self.anchor else self.page


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A section that fits a query, and the part of it that fits best, as plain text."""

    id: str
    title: str
    excerpt: str


class Documentation:
    """The pages under `root`. Any task may ask it.

    All questions wait in line for one thread of its own: however many clients ask at once, the threads that the
    process shares stay free for others.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="documentation")

    async def search(self, query: str, count: int) -> list[SearchHit]:
        """At most `count` sections that have a word of `query`, best first. Any text is a query."""
        return await self._in_thread(lambda: self._index.search(query, count))

    async def read(self, id: str) -> str | None:
        """The Markdown of a page or a section, None where there is no such. No file is opened for a client."""
        return await self._in_thread(lambda: self._index.texts.get(id))

    async def _in_thread(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @cached_property
    def _index(self) -> _Index:
        return _Index(dict(_pages(self._root)))


class _Index:
    """Sections in memory. `texts` has each page and each section by its id."""

    def __init__(self, pages: Mapping[str, str]) -> None:
        self.texts = dict(pages)
        # Made and read in the one thread of Documentation.
        self._database = sqlite3.connect(":memory:")
        self._database.execute(
            "CREATE VIRTUAL TABLE passages USING "
            "fts5(id UNINDEXED, title, headings, text, worth UNINDEXED, tokenize='porter unicode61')"
        )
        for page, text in pages.items():
            worth = SECONDARY_WEIGHT if page.startswith(ASIDE_PAGES) else 1.0
            for section in sections(page, text):
                self.texts.setdefault(section.id, section.text)
                above = (section.id, section.headings[0], " > ".join(section.headings[1:]))
                rows = [(*above, passage, worth) for passage in passages(section.text)]
                self._database.executemany("INSERT INTO passages VALUES (?, ?, ?, ?, ?)", rows)

    def search(self, query: str, count: int) -> list[SearchHit]:
        words = significant_words(query)
        if not words:
            return []
        rows = self._database.execute(
            "SELECT id, title, headings, snippet(passages, 3, '', '', ' … ', ?) FROM passages WHERE passages MATCH ? "
            "ORDER BY bm25(passages, 0, ?, ?, ?) * worth, rowid",
            # Quoted, a word is never an operator of the query language.
            (EXCERPT_TOKENS, " OR ".join(f'"{word}"' for word in words), *WEIGHTS),
        )
        hits: dict[str, SearchHit] = {}
        for id, title, headings, text in rows:
            if len(hits) == count:
                break
            heading = f"{title} > {headings}" if headings else title
            # A section is as good as its best passage.
            hits.setdefault(id, SearchHit(id, heading, " ".join(text.split())))
        return list(hits.values())


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
            level = len(heading[1])
            path = [*((above, title) for above, title in path if above < level), (level, heading[2])]
            anchor, lines = _anchor(heading[2], anchors), []
        lines.append(line)
    yield from _section(page, path, anchor, lines)


def passages(text: str) -> list[str]:
    """`text` in pieces of whole paragraphs, of PASSAGE_CHARS or less where a paragraph is not longer itself."""
    pieces: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        if pieces and len(pieces[-1]) + len(paragraph) <= PASSAGE_CHARS:
            pieces[-1] += f"\n\n{paragraph}"
        else:
            pieces.append(paragraph)
    return pieces


def _section(page: str, path: list[tuple[int, str]], anchor: str, lines: list[str]) -> Iterator[Section]:
    text = "\n".join(lines).strip()
    if text:
        yield Section(page, tuple(heading for _, heading in path) or (page,), anchor, text)


def _anchor(heading: str, taken: dict[str, int]) -> str:
    """The anchor that GitHub makes of a heading: the second of two equal ones ends with `-1`."""
    plain = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
    number = taken[plain] = taken.get(plain, -1) + 1
    return f"{plain}-{number}" if number else plain


def _pages(root: Path) -> Iterator[tuple[str, str]]:
    """Path and text of each page, those for readers before those about decisions."""
    files = [root / "README.md", *sorted((root / "docs").rglob("*.md")), root / "SECURITY.md", root / "CHANGELOG.md"]
    for file in files:
        if file.is_file():
            yield file.relative_to(root).as_posix(), file.read_text("utf-8")
