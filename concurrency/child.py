"""A child process that runs one program of this project apart from everything else, and can be ended at any time.

    with Child(Path(__file__).with_name("decoding.py"), 16_000, 30.0, stdin=file) as child:
        for block in child.blocks(timeout_s): ...         what the program writes
        child.ask(b'{"kind": "JSON"}', timeout_s)         or one line for a line

The program is a module with `main(*arguments)`. It imports the modules beside it with `from . import`: they are its
siblings in a package without an `__init__`, so that nothing of the package that the program lies in is loaded. The
child has its own process group, the folder `/`, no environment but LD_LIBRARY_PATH, and none of Python's own settings.

`Guard` is for the children of a library, which would outlive their parent where that is killed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Self

BLOCK_BYTES = 1 << 16
"""As many as a pipe holds. Larger buffers would fill no more, and leave holes in the heap."""
ENVIRONMENT = ("LD_LIBRARY_PATH",)
"""Variables that a child inherits, where they are set."""

_START = (
    "import os, sys; os.nice({nice}); sys.path += {folders!r};"
    "siblings = type(sys)('siblings'); siblings.__path__ = [{folder!r}]; sys.modules['siblings'] = siblings;"
    "from siblings import {name}; {name}.main{arguments!r}"
)


def command(program: Path, *arguments: float | str, library: str | None = None, nice: int = 0) -> list[str]:
    """The command that runs a program; the arguments are those of `Child`."""
    folders = [_folder_of(library)] if library else []
    start = _START.format(
        nice=nice, folders=folders, folder=str(program.parent), name=program.stem, arguments=arguments
    )
    return [sys.executable, "-I", *(["-S"] if library else []), "-c", start]


def settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """Settings of `subprocess` that keep a child apart; `environ` is what it gets beside ENVIRONMENT."""
    env = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ} | dict(environ)
    return {"env": env, "cwd": "/"}


class ChildError(RuntimeError):
    """The child has ended, or did not write anything in time."""


class Child:
    """A running child. One thread speaks with it; any thread may kill it.

    Args:
        program: file of the program.
        arguments: of its `main`.
        library: the one package that the program can import beside the standard library; None: all that are installed.
        nice: increment of the child's nice value.
        environ: variables that it gets beside ENVIRONMENT.
        stdin, stderr: descriptors, or constants of `subprocess`.
    """

    def __init__(
        self,
        program: Path,
        *arguments: float | str,
        library: str | None = None,
        nice: int = 0,
        environ: Mapping[str, str] | None = None,
        stdin: int = subprocess.PIPE,
        stderr: int | None = None,
    ) -> None:
        self._lock = Lock()
        self._is_closed = False
        self._process: subprocess.Popen[bytes] = subprocess.Popen(
            command(program, *arguments, library=library, nice=nice),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            process_group=0,  # where the kernel shares out the cores by session, nice values count only within one
            **settings(environ or {}),
        )

    @property
    def is_alive(self) -> bool:
        """Says if the process runs."""
        return self._process.poll() is None

    def ask(self, line: bytes, timeout_s: float) -> bytes:
        """The line that answers `line`. Raises OSError, ChildError; ValueError where another thread has closed it."""
        assert self._process.stdin
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()
        answer = bytearray()
        for block in self.blocks(timeout_s):
            answer += block
            if answer.endswith(b"\n"):
                return bytes(answer)
        raise ChildError("the child ended without an answer")

    def blocks(self, timeout_s: float) -> Iterator[bytes]:
        """Returns the output of the child until it closes it. Raises ChildError after `timeout_s`."""
        output, deadline = self._process.stdout, time.monotonic() + timeout_s
        assert output
        poll = select.poll()
        poll.register(output, select.POLLIN)
        while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            # Not by its descriptor, which could be another file's once `close` has run.
            block = output.read1(BLOCK_BYTES)  # type: ignore[attr-defined]
            if not block:
                return
            yield block
        raise ChildError(f"the child took longer than {timeout_s:g} s")

    def errors(self, most_bytes: int) -> str:
        """Returns the standard error of the child, if that is a pipe; waits until the child has ended."""
        assert self._process.stderr
        return self._process.stderr.read(most_bytes).decode(errors="replace")

    def kill(self) -> None:
        """Kills the process and what it forked. A thread that reads from it sees the end of its output."""
        with self._lock:
            self._kill()

    def close(self) -> None:
        """Kills the process, waits for its end and closes the pipes."""
        with self._lock:
            self._kill()
            self._is_closed = True
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with suppress(OSError):
                if pipe:
                    pipe.close()

    def _kill(self) -> None:
        if not self._is_closed:  # later, its number may be another process's
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Guard:
    """Kills processes once this one has ended, however that was. They are not killed after `release`.

    A shell reads from a pipe that no other process holds: it ends with this process.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        command = ["sh", "-c", 'cat; kill -KILL "$@"', "sh", *map(str, pids)]
        silent = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=silent, stderr=silent, cwd="/", start_new_session=True
        )

    def release(self) -> None:
        """Lets them go."""
        self._process.kill()
        self._process.communicate()


def _folder_of(library: str) -> str:
    """The folder on `sys.path` in which a package lies."""
    spec = find_spec(library)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"the package `{library}` is not installed")
    return str(Path(spec.origin).parents[1])
