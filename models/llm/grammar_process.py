"""A process that runs `grammar_child.py`, and is asked one question at a time."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("grammar_child.py")


class Child:
    """One `grammar_child.py`, asked by one thread at a time."""

    def __init__(self, vocabulary: bytes) -> None:
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=kept | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self._first = vocabulary

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], patience_s: float) -> dict[str, Any]:
        """The answer to `request`. Raises OSError, RuntimeError where the child has died or says nothing."""
        if self._first:
            self._exchange(self._first, patience_s)
            self._first = b""
        return self._exchange(json.dumps(request).encode() + b"\n", patience_s)

    def _exchange(self, line: bytes, patience_s: float) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        stdin.write(line)
        stdin.flush()
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        answer = stdout.readline() if poll.poll(patience_s * 1000) else b""
        if not answer:
            raise RuntimeError("a child process that compiles grammars has died or hangs")
        return dict(json.loads(answer))

    def end(self) -> None:
        """Kills the process and what it forked. Who is asking it gets an error."""
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError, ValueError):
                if pipe:
                    pipe.close()
