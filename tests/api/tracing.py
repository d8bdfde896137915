"""Traces what a request runs: the product files that its calls enter, and where control climbs back up.

    with Tracer() as tracer:
        walk = await tracer.follow(request)

A function call (`sys.setprofile`, in every thread and task) enters the file of the function. Module bodies do not
count, nor does what a file merely defines.

A **climb** is a pair of files: a function of the first one calls (or resumes) one of the second, while the second
imports the first, directly or through others. A hook, a closure or a generator has then led control back up. The
caller is the function below on the stack, frames of the standard library aside. Where that is a library's there is no
climb: routers and validators dispatch downwards. A new task or thread has no caller, and returns do not count.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[2]

ROOMS = ("contract", "text", "audio", "concurrency", "configs", "state", "models", "autoscaling", "deployments")


@dataclass
class Walk:
    """What one walk entered, in the order of the first entry.

    Attributes:
        climbs: pairs of files, as the module says.
    """

    files: dict[str, None] = field(default_factory=dict)
    climbs: dict[tuple[str, str], None] = field(default_factory=dict)

    def files_with(self, engine: Iterable[str]) -> list[str]:
        """Those that were traced, and those of the real engine."""
        return [*self.files, *(file for file in engine if file not in self.files)]


STANDARD_LIBRARY = (f"{Path(ast.__file__).parent}/", "<frozen ")


@cache
def file_of(code_file: str) -> str | None:
    """The product file, relative to the root, that a code object comes from."""
    path = Path(code_file)
    if not path.is_absolute() or not path.is_relative_to(ROOT):
        return None
    relative = path.relative_to(ROOT)
    return relative.as_posix() if relative.parts[0] in ROOMS else None


class Tracer:
    """Follows the calls of product code in this thread and in each that starts while the block runs."""

    def __init__(self) -> None:
        self._walk: Walk | None = None

    def __enter__(self) -> Tracer:
        threading.setprofile(self._enter)
        sys.setprofile(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    async def follow(self, walk: Callable[[], Awaitable[None]]) -> Walk:
        self._walk = walked = Walk()
        await walk()
        self._walk = None
        return walked

    def _enter(self, frame: FrameType, event: str, _: object) -> None:
        if self._walk is None or event != "call" or frame.f_code.co_name == "<module>":
            return
        file = file_of(frame.f_code.co_filename)
        if file is None:
            return
        self._walk.files.setdefault(file)
        caller = _caller(frame)
        if caller and caller != file and caller in above()[file]:
            self._walk.climbs.setdefault((caller, file))


def in_all(walks: Sequence[Walk]) -> Walk:
    """What every one of the walks entered: a task that runs now and then beside them is no part of them."""
    first, *others = walks
    return Walk(
        {file: None for file in first.files if all(file in other.files for other in others)},
        {climb: None for climb in first.climbs if all(climb in other.climbs for other in others)},
    )


def _caller(frame: FrameType) -> str | None:
    below = frame.f_back
    while below is not None and below.f_code.co_filename.startswith(STANDARD_LIBRARY):
        below = below.f_back
    return None if below is None else file_of(below.f_code.co_filename)


@cache
def above() -> dict[str, set[str]]:
    """Of each product file, all that it imports at its top level, directly or through others."""
    files = {file.relative_to(ROOT).as_posix() for room in ROOMS for file in (ROOT / room).rglob("*.py")}
    direct = {file: set(_imported(file, files)) for file in files}
    reached: dict[str, set[str]] = {}
    for file in files:
        seen: set[str] = set()
        rest = [file]
        while rest:
            more = direct[rest.pop()] - seen
            seen |= more
            rest += more
        reached[file] = seen
    return reached


def _imported(file: str, files: set[str]) -> Iterator[str]:
    for node in ast.parse((ROOT / file).read_text("utf-8")).body:
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            path = name.replace(".", "/")
            yield from (found for found in (f"{path}.py", f"{path}/__init__.py") if found in files)
