"""What a program tells the kit: one line of JSON for each step, on standard output.

@step("name")                               works, unless it raises
@step("name", cannot="why", error="text")   must raise an error with `text`; the page says why
raise NotHere("why")                        cannot be tried here
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any, Literal

MOST_CHARS = 400
"""Of what an error says."""

City = Literal["Paris", "Rome"]
"""Of answers whose form is given: a small model might not end a text of its own before its tokens are spent."""

STEPS: list[tuple[str, str, str, Callable[[], Any]]] = []


class NotHere(Exception):
    """Raised by a step that cannot be tried here, such as one whose client is not installed."""


def step(name: str, *, cannot: str = "", error: str = "") -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Puts a function on the list. It may be a coroutine; a text that it returns is shown."""

    def listed(function: Callable[[], Any]) -> Callable[[], Any]:
        STEPS.append((name, cannot, error, function))
        return function

    return listed


def run() -> None:
    """Takes all steps in the order of the file. One that fails does not stop the next."""
    for name, cannot, error, function in STEPS:
        fault, said, not_run = "", "", ""
        try:
            said = asyncio.run(function()) if inspect.iscoroutinefunction(function) else function()
        except NotHere as raised:
            not_run = str(raised)
        except Exception as raised:
            fault = f"{type(raised).__name__}: {raised}"
        is_expected = error in fault if cannot else True
        told = {"step": name, "cannot": cannot, "failed": fault[:MOST_CHARS], "is_expected": is_expected}
        print(json.dumps(told | {"not_run": not_run, "said": str(said or "")}), flush=True)
