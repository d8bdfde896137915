"""Grammars of clients are compiled in a child first, and reach the engine only if that was cheap.

    grammars = Grammars(vocabulary)
    await grammars.check(kind, spec, owner)     returns what the engine may compile, else raises
      |- Refused    it cannot be compiled, took too long or too much memory, or would harm the engine's steps
      `- QueueFull  too many wait
    await grammars.first_refused(kind, specs, owner)    which of several is refused, within the time of one

vLLM compiles inside the engine, one grammar after the other, and no compilation there can be ended: one of a minute
would stop all structured answers. A child (`grammar_child.py`) can be. The engine then compiles the same once more,
within the time that was proven: a compiled grammar of 2 MB is 13 MB of JSON and takes longer to read than to make. An
engine in this process does so in the same turn, also for a client that has left, so that no known grammar waits. The
child also walks through what it compiled (`grammar_walk.py`): a grammar that leaves no token fails in the engine, and
one with expensive tokens delays the step of all requests. Owners take turns at the children, so no more reaches the
engine than they let through. A verdict is cached for its owner alone: others learn nothing from response times, and are
not refused what took too long while that owner loaded the machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

from concurrency.background import start_task
from concurrency.child import Child
from concurrency.fairness import QueueFull
from concurrency.semaphore import FairSemaphore
from contract.limits import REGEX_STATES, SCHEMA_COMPILE_S, SCHEMA_STEP_MS
from models.cpu import background

if TYPE_CHECKING:
    from cachetools import LRUCache
    from vllm.v1.engine.async_llm import AsyncLLM

__all__ = ["Grammars", "QueueFull", "Refused", "of_engine"]

log = logging.getLogger(f"parlance.{__name__}")

Kind = Literal["JSON", "STRUCTURAL_TAG", "REGEX", "CHOICE"]
"""Kind of `spec`: a JSON schema, a structural tag of vLLM, a regular expression, or a JSON list of texts."""
PARTS = ("JSON", "PARSE")
"""Of these an engine gets nothing: they are looked at to find the part of a request that was refused."""
Syntax = Literal["PARSE"]
"""A JSON schema of which only the syntax is checked."""

PROGRAM = Path(__file__).with_name("grammar_child.py")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

NICENESS = 10
"""Of the children, below the engines: requests wait for their steps."""
CHILDREN = 2
"""Compilations at a time. Later ones wait for a turn; an owner has one at a time."""
OWNER_WAITING = 8
"""Compilations of one owner that may wait."""
ALL_WAITING = 64
"""Compilations of all owners that may wait."""
WALL_PER_CPU = 6
"""Seconds that a child may take for each second of processor time that it may use: it does not run alone."""
CACHE_BYTES = 256 * 1024**2
"""Bytes of compiled grammars with a cached verdict: half of vLLM's own cache, so that what passed is still in there."""
VERDICT_BYTES = 4096
"""The least that a verdict counts for in the cache, so that their number is bounded too."""
RETRY_S = 60.0
"""Seconds during which a grammar that took too long is refused at once; later the machine may have more time for it."""


class Refused(ValueError):
    """A grammar that the engine must not compile.

    Attributes:
        reason: `invalid`, `keyword` where a part of it would be ignored, `empty`, `slow`, `time` or `memory`.
        detail: fault of an expression, the text that nothing can follow, or the cost of a token and its limit.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class _Verdict:
    weight_bytes: int
    spent_s: float
    refusal: tuple[str, str] | None = None
    until: float = float("inf")
    grammar: str = ""


def of_engine(engine: AsyncLLM) -> Grammars:
    """For what `engine` may compile."""

    def vocabulary() -> str:
        from xgrammar import TokenizerInfo

        tokenizer, size = engine.renderer.tokenizer, engine.model_config.get_vocab_size()
        return str(TokenizerInfo.from_huggingface(tokenizer, vocab_size=size).serialize_json())

    return Grammars(vocabulary, compile_in_engine=getattr(engine.engine_core, "compile_grammar", None))


class Grammars:
    """Compiler of grammars for one vocabulary. Used from one event loop; children start at the first need.

    Args:
        vocabulary: gives xgrammar's `TokenizerInfo` as JSON; called once, in a thread.
        cpu_s: processor time of a compilation.
        compile_in_engine: compiles in the engine a grammar that passed; None where that is another process.
    """

    def __init__(
        self,
        vocabulary: Callable[[], str],
        cpu_s: int = SCHEMA_COMPILE_S,
        compile_in_engine: Callable[[str, str], None] | None = None,
    ) -> None:
        from cachetools import LRUCache

        self._vocabulary, self._cpu_s, self._compile_in_engine = vocabulary, cpu_s, compile_in_engine
        self._slots = FairSemaphore(CHILDREN, OWNER_WAITING, ALL_WAITING)
        self._vocabulary_line: asyncio.Task[bytes] | None = None
        self._threads = background(CHILDREN, "grammars")
        self._idle: list[Child] = []
        self._children: set[Child] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._compiling: WeakSet[Any] = WeakSet()
        """Tasks that have a child."""
        self._verdicts: LRUCache[bytes, _Verdict] = LRUCache(CACHE_BYTES, attrgetter("weight_bytes"))

    async def check(self, kind: Kind | Syntax, spec: str, owner: str) -> str:
        """Returns where `spec` can be compiled in the time there is. Raises Refused, QueueFull as the module says.

        Gives the grammar that the engine compiles instead, for a regular expression or a list of texts, else "".
        """
        verdict = await self._verdict(kind, spec, owner, self._cpu_s)
        if verdict.refusal:
            raise Refused(*verdict.refusal)
        return verdict.grammar

    async def first_refused(self, kind: Kind | Syntax, specs: Sequence[str], owner: str) -> int | None:
        """The index of the first of `specs` that is refused alone; None where none was within the time of one."""
        left_s = float(self._cpu_s)
        for index, spec in enumerate(specs):
            if left_s <= 0:
                break
            try:
                verdict = await self._verdict(kind, spec, owner, math.ceil(left_s))
            except QueueFull:
                break
            if verdict.refusal:
                return index if verdict.refusal[0] != "time" else None
            left_s -= verdict.spent_s
        return None

    async def _verdict(self, kind: Kind | Syntax, spec: str, owner: str, cpu_s: int) -> _Verdict:
        key = hashlib.sha256(f"{owner}\n{kind}\n{spec}".encode("utf-8", "surrogatepass")).digest()
        if verdict := self._cached(key):
            return replace(verdict, spent_s=0)
        task = start_task(self._judged(key, kind, spec, owner, cpu_s), self._tasks)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # A client that leaves gives up its turn, but a child may finish an answer that it has begun.
            if task not in self._compiling:
                task.cancel()
            raise

    def close(self) -> None:
        """Ends the children. Checks under way fail."""
        for task in self._tasks:
            task.cancel()
        for child in self._children:
            child.close()
        self._idle.clear()
        self._children.clear()
        self._threads.shutdown(wait=False)

    def _cached(self, key: bytes) -> _Verdict | None:
        verdict = self._verdicts.get(key)
        return None if verdict is None or verdict.until < time.monotonic() else verdict

    async def _judged(self, key: bytes, kind: Kind | Syntax, spec: str, owner: str, cpu_s: int) -> _Verdict:
        async with self._slots.of(owner):
            self._compiling.add(asyncio.current_task())
            verdict = self._cached(key)
            if verdict is None:
                verdict = await self._compiled(kind, spec, cpu_s)
                if self._compile_in_engine and not verdict.refusal and kind not in PARTS:
                    grammar = ("GRAMMAR", verdict.grammar) if verdict.grammar else (kind, spec)
                    await asyncio.get_running_loop().run_in_executor(self._threads, self._compile_in_engine, *grammar)
                if cpu_s >= self._cpu_s or not verdict.refusal:
                    with suppress(ValueError):  # one that is larger than the cache is not stored
                        self._verdicts[key] = verdict
            return verdict

    async def _compiled(self, kind: Kind | Syntax, spec: str, cpu_s: int) -> _Verdict:
        wall_s = WALL_PER_CPU * cpu_s
        child = await self._child(2 * wall_s)
        limits = {"cpu_s": cpu_s, "wall_s": wall_s, "states": REGEX_STATES, "step_ms": SCHEMA_STEP_MS}
        request = {"kind": kind, "spec": spec} | limits
        answer = json.loads(await self._ask(child, json.dumps(request).encode(), 2 * wall_s))
        self._idle.append(child)
        spent_s = answer["spent_s"]
        if "bytes" in answer:
            grammar = answer.get("grammar", "")
            return _Verdict(max(answer["bytes"], VERDICT_BYTES) + len(grammar), spent_s, grammar=grammar)
        if "refused" in answer:
            until = time.monotonic() + RETRY_S if answer["reason"] == "slow" else float("inf")
            return _Verdict(VERDICT_BYTES, spent_s, (answer["reason"], answer["refused"]), until)
        log.warning("a grammar of %d characters was refused: it took too much %s", len(spec), answer["died"])
        return _Verdict(VERDICT_BYTES, spent_s, (answer["died"], ""), time.monotonic() + RETRY_S)

    async def _child(self, timeout_s: float) -> Child:
        """A child that is idle and alive."""
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            self._close(child)
        vocabulary = await self._first_line()
        child = Child(PROGRAM, nice=NICENESS, environ=ONE_THREAD)
        self._children.add(child)
        await self._ask(child, vocabulary, timeout_s)
        return child

    async def _ask(self, child: Child, line: bytes, timeout_s: float) -> bytes:
        """The answer of `child`. A child that fails is closed, and so is one if its answer is no longer awaited."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, child.ask, line, timeout_s)
        except BaseException:
            self._close(child)
            raise

    def _close(self, child: Child) -> None:
        self._children.discard(child)
        child.close()

    async def _first_line(self) -> bytes:
        line = self._vocabulary_line
        if line is None or (line.done() and line.exception()):
            line = asyncio.create_task(asyncio.to_thread(lambda: self._vocabulary().encode()))
            self._vocabulary_line = line
        return await asyncio.shield(line)
