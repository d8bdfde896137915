"""Does the work of Ray's `setup_worker.py` for workers that `enter.py` starts, without importing Ray.

    setup_worker.py default_worker.py --serialized-runtime-env-context={...} --language=PYTHON --arguments ...

Whatever is not exactly so goes Ray's way. So it does without PYTHONPATH, by which Python finds this.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

CONTEXT, LANGUAGE = "--serialized-runtime-env-context=", "--language="

ENTER = str(Path(__file__).with_name("enter.py"))

SUPPORTED_KEYS = {"py_executable"}
"""Fields that a runtime environment here sets. Anything more takes Ray's own code."""


def take(arguments: Sequence[str]) -> None:
    """Becomes the worker's command; returns where that is for Ray to make. `arguments` are `setup_worker.py`'s."""
    with suppress(Exception):  # then Ray finds what is wrong, and says so
        if command := command_of(arguments):
            os.execv(command[0], command)


def command_of(arguments: Sequence[str]) -> list[str] | None:
    """The words of the command, or None. Raises ValueError for what is no JSON."""
    context: dict[str, Any] = next(
        (json.loads(text.removeprefix(CONTEXT)) for text in arguments if text.startswith(CONTEXT)), {}
    )
    if {name for name, value in context.items() if value} != SUPPORTED_KEYS or f"{LANGUAGE}PYTHON" not in arguments:
        return None
    command = shlex.split(context["py_executable"])
    if ENTER not in command:
        return None
    return [*command, *(text for text in arguments if not text.startswith((CONTEXT, LANGUAGE)))]
