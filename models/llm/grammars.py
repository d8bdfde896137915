"""Grammars of strangers are compiled in a child first, and reach the engine only if that was cheap.

    grammars = Grammars(vocabulary)
    await grammars.check(kind, spec, owner)     returns what the engine may compile, else raises
      |- Refused    it cannot be compiled, took too long or too much memory, or would harm the engine's steps
      `- Crowded    too many wait
    await grammars.first_refused(kind, specs, owner)    which of them it was, as far as the time of one suffices

vLLM compiles inside the engine, one grammar after the other, and no compilation there can be ended: one of a minute
would stop everybody's structured answers. A child (`grammar_child.py`) can be. The engine then compiles the same once
more, within the time that was proven: a compiled grammar of 2 MB is 13 MB of JSON and takes longer to read than to
make. The child also walks through what it compiled (`grammar_walk.py`): a grammar that leaves no token fails in the
engine, and one whose tokens cost much holds up everybody's step. Owners take turns at the children, so no more reaches
the engine than they let through. What was found is remembered for its owner alone: others learn nothing from the time
that it takes, and are not refused what took too long while he loaded the machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from audio.turns import Crowded, Turns
from concurrency.child import Child
from contract.limits import REGEX_STATES, SCHEMA_COMPILE_S, SCHEMA_STEP_MS

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

__all__ = ["Crowded", "Grammars", "Refused", "of_engine"]

log = logging.getLogger(f"parlance.{__name__}")

Kind = Literal["JSON", "STRUCTURAL_TAG", "REGEX", "CHOICE"]
"""What `spec` is: a JSON schema, a structural tag of vLLM, a regular expression, or a JSON list of texts."""
Syntax = Literal["PARSE"]
"""A JSON schema of which only the syntax is looked at."""

PROGRAM = Path(__file__).with_name("grammar_child.py")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

CHILDREN = 2
"""Compilations at a time. Who comes later waits for a turn; an owner has one."""
OWNER_WAITING = 8
ALL_WAITING = 64
PATIENCE = 3
"""Seconds that a child may take for each second of processor time that it may use: it does not run alone."""
KEPT_BYTES = 256 * 1024**2
"""Compiled grammars that are remembered as cheap: half of what vLLM keeps, so what is remembered is still there."""
VERDICT_BYTES = 4096
"""What a verdict counts for at least, so that their number is bounded too."""
RETRY_S = 60.0
"""A grammar that took too long is refused at once for so long; then the machine may have more time for it."""


class Refused(ValueError):
    """A grammar that the engine must not compile.

    Attributes:
        reason: `invalid`, `empty`, `slow`, `time` or `memory`.
        detail: what is invalid, the text that nothing can follow, or the milliseconds of a token.
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

    return Grammars(vocabulary)


class Grammars:
    """What may be compiled for one vocabulary. Used from one event loop; children start at the first need.

    Args:
        vocabulary: gives xgrammar's `TokenizerInfo` as JSON; called once, in a thread.
        cpu_s: processor time of a compilation.
    """

    def __init__(self, vocabulary: Callable[[], str], cpu_s: int = SCHEMA_COMPILE_S) -> None:
        self._vocabulary, self._cpu_s = vocabulary, cpu_s
        self._turns = Turns(CHILDREN, OWNER_WAITING, ALL_WAITING)
        self._written: asyncio.Task[bytes] | None = None
        self._threads = ThreadPoolExecutor(CHILDREN, thread_name_prefix="grammars")
        self._idle: list[Child] = []
        self._children: set[Child] = set()
        self._tasks: set[asyncio.Task[_Verdict]] = set()
        self._asking: set[asyncio.Task[Any] | None] = set()
        """Those of the tasks whose turn it is."""
        self._kept: OrderedDict[bytes, _Verdict] = OrderedDict()
        self._kept_bytes = 0

    async def check(self, kind: Kind | Syntax, spec: str, owner: str) -> str:
        """Returns where `spec` can be compiled in the time there is. Raises Refused, Crowded as the module says.

        Gives the grammar that the engine compiles instead, for a regular expression or a list of texts, else "".
        """
        verdict = await self._verdict(kind, spec, owner, self._cpu_s)
        if verdict.refusal:
            raise Refused(*verdict.refusal)
        return verdict.grammar

    async def first_refused(self, kind: Kind | Syntax, specs: Sequence[str], owner: str) -> int | None:
        """Which of `specs` is refused alone. None where none is, or none was found in the time that one has."""
        left_s = float(self._cpu_s)
        for place, spec in enumerate(specs):
            if left_s <= 0:
                break
            try:
                verdict = await self._verdict(kind, spec, owner, math.ceil(left_s))
            except Crowded:
                break
            if verdict.refusal:
                return place if verdict.refusal[0] != "time" else None
            left_s -= verdict.spent_s
        return None

    async def _verdict(self, kind: Kind | Syntax, spec: str, owner: str, cpu_s: int) -> _Verdict:
        """What is known of `spec`, or is found within `cpu_s`. Raises Crowded."""
        key = hashlib.sha256(f"{owner}\n{kind}\n{spec}".encode("utf-8", "surrogatepass")).digest()
        if verdict := self._known(key):
            return replace(verdict, spent_s=0)
        task = asyncio.create_task(self._judged(key, kind, spec, owner, cpu_s))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # A client that leaves gives its turn up, but a child in the middle of an answer is heard out.
            if task not in self._asking:
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

    def _forget(self, task: asyncio.Task[_Verdict]) -> None:
        self._tasks.discard(task)
        self._asking.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be left to hear it

    def _known(self, key: bytes) -> _Verdict | None:
        verdict = self._kept.get(key)
        if verdict is None or verdict.until < time.monotonic():
            return None
        self._kept.move_to_end(key)
        return verdict

    async def _judged(self, key: bytes, kind: Kind | Syntax, spec: str, owner: str, cpu_s: int) -> _Verdict:
        async with self._turns.of(owner):
            self._asking.add(asyncio.current_task())
            verdict = self._known(key)
            if verdict is None:
                verdict = await self._compiled(kind, spec, cpu_s)
                if cpu_s >= self._cpu_s or not verdict.refusal:
                    self._keep(key, verdict)
            return verdict

    async def _compiled(self, kind: Kind | Syntax, spec: str, cpu_s: int) -> _Verdict:
        wall_s = PATIENCE * cpu_s
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
        log.warning("a grammar of %d characters was given up: too much %s", len(spec), answer["died"])
        return _Verdict(VERDICT_BYTES, spent_s, (answer["died"], ""), time.monotonic() + RETRY_S)

    async def _child(self, timeout_s: float) -> Child:
        """A child that is free and alive."""
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            self._close(child)
        vocabulary = await self._vocabulary_line()
        child = Child(PROGRAM, environ=ONE_THREAD)
        self._children.add(child)
        await self._ask(child, vocabulary, timeout_s)
        return child

    async def _ask(self, child: Child, line: bytes, timeout_s: float) -> bytes:
        """What the child answers. A child that fails, or whose answer is awaited no longer, is closed."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, child.ask, line, timeout_s)
        except BaseException:
            self._close(child)
            raise

    def _close(self, child: Child) -> None:
        self._children.discard(child)
        child.close()

    async def _vocabulary_line(self) -> bytes:
        """The first line that a child reads."""
        if self._written is None or (self._written.done() and self._written.exception()):
            self._written = asyncio.create_task(asyncio.to_thread(lambda: self._vocabulary().encode()))
        return await asyncio.shield(self._written)

    def _keep(self, key: bytes, verdict: _Verdict) -> None:
        if old := self._kept.pop(key, None):
            self._kept_bytes -= old.weight_bytes
        self._kept[key] = verdict
        self._kept_bytes += verdict.weight_bytes
        while self._kept_bytes > KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= oldest.weight_bytes
