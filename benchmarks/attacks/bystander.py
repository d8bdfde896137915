"""Somebody of another organisation who asks all the time while an attack runs, in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.attacks.target import Target, authorized

EVERY_S = 0.1
"""Between two requests: 600 a minute at most, which a plan allows."""

WAIT_S = 3.0
"""What somebody else may wait at the worst. Far from both sides: calm is milliseconds, harm was 4 to 60 seconds."""

HELD_UP_S = 0.3
"""Usual wait of another client beside bodies that are only wrong."""
HELD_UP_SHORT_S = 1.5
"""The same where tests run beside it on the same processors. It was 9 s."""

TIMES_CALM = 20
"""Where a calm reply takes long already, the worst one may take so many times as long."""


@dataclass(frozen=True, slots=True)
class Question:
    """What the bystander asks."""

    method: str = "GET"
    path: str = "/v1/me"
    body: dict[str, Any] | None = None


@dataclass
class Waits:
    """How long replies took, in seconds, and the statuses of those that were not 200."""

    calm_s: float = 0.0
    each_s: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def passed(self) -> bool:
        """Whether nobody else was harmed."""
        return bool(self.each_s) and not self.failures and max(self.each_s) <= max(WAIT_S, TIMES_CALM * self.calm_s)

    @property
    def usual_s(self) -> float:
        """What nine of ten waited at most. The worst one may be the machine's own doing."""
        return sorted(self.each_s)[len(self.each_s) * 9 // 10] if self.each_s else 0.0

    def is_hardly_noticed(self, target: Target) -> bool:
        return self.usual_s <= (HELD_UP_SHORT_S if target.is_short else HELD_UP_S)

    def __str__(self) -> str:
        """For a table."""
        worst_s = max(self.each_s, default=0.0)
        failed = "".join(f", {count} got {name}" for name, count in self.failures.items())
        return (
            f"others waited {worst_s:.2f} s at worst, {self.usual_s:.2f} s as a rule (calm {self.calm_s:.2f} s){failed}"
        )


@contextmanager
def standing_by(target: Target, question: Question | None = None) -> Iterator[Waits]:
    """Asks three times in peace, and then on and on until the block ends."""
    probe, waits, over = question or Question(), Waits(), threading.Event()
    with httpx.Client(base_url=target.url, headers=authorized(target.bystander_key), timeout=120) as client:

        def ask() -> float:
            began_s = time.perf_counter()
            try:
                reply = client.request(probe.method, probe.path, json=probe.body)
                if reply.status_code != 200:
                    waits.failures[str(reply.status_code)] += 1
            except httpx.HTTPError as error:
                waits.failures[type(error).__name__] += 1
            return time.perf_counter() - began_s

        def ask_on() -> None:
            while not over.wait(EVERY_S):
                waits.each_s.append(ask())

        ask()  # the first may wake an engine
        waits.failures.clear()
        waits.calm_s = max(ask() for _ in range(3))
        thread = threading.Thread(target=ask_on)
        thread.start()
        try:
            yield waits
        finally:
            over.set()
            thread.join()
            waits.each_s.append(ask())  # an attack may be over sooner than the first of them


def short_chat(target: Target, **fields: Any) -> Question:
    """One token of the first chat model."""
    messages = [{"role": "user", "content": "say hi"}]
    body = {"model": target.models["chat"][0], "messages": messages, "max_tokens": 1} | fields
    return Question("POST", "/v1/chat/completions", body)
