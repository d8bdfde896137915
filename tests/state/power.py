"""A loss of power, played from a trace of `failpoints.c`: at any moment of it, what a disk may hold.

Data are on the disk once their file is synced, and names once their folder is; each change since then may be lost, torn
at a block, or there while an earlier one is not. Only a rename within a folder is whole, as journals make it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

BLOCK_BYTES = 512
FAILING = "wsrco"
"""Kinds of entries whose calls `failpoints.c` can fail: write, sync, rename, create, open."""


class Entry(NamedTuple):
    """One line of a trace: `kind` is a letter of `failpoints.c`."""

    kind: str
    inode: int
    at: int
    data: bytes


def read_trace(path: Path) -> list[Entry]:
    """All entries of the trace, whose last one may be cut off."""
    entries = []
    with path.open("rb") as file:
        while head := file.readline():
            kind, inode, at, size = head.decode().split()
            entries.append(Entry(kind, int(inode), int(at), file.read(int(size))))
    return entries


def notes(entries: list[Entry]) -> list[str]:
    return [entry.data.decode() for entry in entries if entry.kind == "n"]


@dataclass(eq=False)
class File:
    """The data on the disk, and pieces that are only in memory, each with its place; None cuts the file off there."""

    data: bytearray
    waiting: list[tuple[int, bytes | None]] = field(default_factory=list)

    def sync(self) -> None:
        for at, piece in self.waiting:
            _change(self.data, at, piece)
        self.waiting.clear()

    def write_remains(self, path: Path, chance: Random, lost: float) -> None:
        data = bytearray(self.data)
        for at, piece in self.waiting:
            if chance.random() >= lost:
                _change(data, at, piece)
            elif piece and chance.random() < lost / 2:
                for start in range(at - at % BLOCK_BYTES, at + len(piece), BLOCK_BYTES):
                    first, end = max(start, at), min(start + BLOCK_BYTES, at + len(piece))
                    if chance.random() < 0.5:
                        _change(data, first, piece[first - at : end - at])
        path.touch(0o600)
        path.write_bytes(data)


def _change(data: bytearray, at: int, piece: bytes | None) -> None:
    data.extend(bytes(max(0, at - len(data))))
    if piece is None:
        del data[at:]
    else:
        data[at : at + len(piece)] = piece


@dataclass(eq=False)
class Folder:
    """The names on the disk, the names that processes see, and the changes between the two."""

    synced: dict[str, File | Folder] = field(default_factory=dict)
    seen: dict[str, File | Folder] = field(default_factory=dict)
    waiting: list[Mapping[str, File | Folder | None]] = field(default_factory=list)

    def change(self, names: Mapping[str, File | Folder | None]) -> None:
        _rename(self.seen, names)
        self.waiting.append(names)

    def sync(self) -> None:
        self.synced = dict(self.seen)
        self.waiting.clear()

    def write_remains(self, path: Path, chance: Random, lost: float) -> None:
        names, gone = dict(self.synced), set[str]()
        for change in self.waiting:
            if gone.isdisjoint(change) and chance.random() >= lost:
                _rename(names, change)
            else:
                gone |= change.keys()
        path.mkdir(0o700)
        for name, node in names.items():
            node.write_remains(path / name, chance, lost)


def _rename(names: dict[str, File | Folder], change: Mapping[str, File | Folder | None]) -> None:
    for name, node in change.items():
        names.pop(name, None)
        if node is not None:
            names[name] = node


class Disk:
    """The disk below `root`, as it is now and all synced; `apply` takes it on through a trace."""

    def __init__(self, root: Path) -> None:
        self._path = root
        self._nodes: dict[int, File | Folder] = {}
        self._root = self._read(root)

    def losses(self, entries: list[Entry], chance: Random, times: int, into: Path) -> Iterator[list[str]]:
        """Loses the power at random moments, half of them just after a note; with `times` 0 after every note.

        `into` is what is found then, with `times` 0 without all that was not synced; the notes before it are yielded.
        """
        told = [number for number, entry in enumerate(entries, 1) if entry.kind == "n"]
        everywhere = range(1, len(entries) + 1)
        moments = sorted(chance.choices(everywhere, k=times - times // 2) + chance.choices(told, k=times // 2)) or told
        for number, entry in enumerate(entries, 1):
            self._apply(entry)
            while moments and moments[0] == number:
                del moments[0]
                shutil.rmtree(into, ignore_errors=True)
                # Where nothing is lost it was the process that died.
                self._root.write_remains(into, chance, chance.choice([0.0, 0.5, 1.0]) if times else 1.0)
                yield notes(entries[:number])

    def _read(self, path: Path) -> File | Folder:
        if path.is_dir():
            names = {child.name: self._read(child) for child in path.iterdir()}
            node: File | Folder = Folder(names, dict(names))
        else:
            node = File(bytearray(path.read_bytes()))
        self._nodes[path.stat().st_ino] = node
        return node

    def _apply(self, entry: Entry) -> None:
        kind, inode, at, data = entry
        match kind:
            case "w" | "t":
                if isinstance(file := self._nodes.get(inode), File):
                    file.waiting.append((at, data if kind == "w" else None))
            case "s":
                self._nodes[inode].sync()
            case "c" | "d":
                self._nodes[inode] = File(bytearray()) if kind == "c" else Folder()
                self._name(data, self._nodes[inode])
            case "u":
                self._name(data, None)
            case "h":
                one, other = data.split(b"\n")
                self._name(other, self._find(one))
            case "r":
                self._move(*data.split(b"\n"))

    def _move(self, one: bytes, other: bytes) -> None:
        node = self._find(one)
        (source, name), (target, fresh) = self._place(one), self._place(other)
        if source is target:
            source.change({name: None, fresh: node})
        else:
            target.change({fresh: node})
            source.change({name: None})

    def _name(self, path: bytes, node: File | Folder | None) -> None:
        folder, name = self._place(path.rstrip(b"\n"))
        folder.change({name: node})

    def _find(self, path: bytes) -> File | Folder:
        folder, name = self._place(path)
        return folder.seen[name]

    def _place(self, path: bytes) -> tuple[Folder, str]:
        """The folder of a path, and the name in it."""
        *folders, name = Path(path.decode()).relative_to(self._path).parts
        node = self._root
        for part in folders:
            assert isinstance(node, Folder)
            node = node.seen[part]
        assert isinstance(node, Folder)
        return node, name
