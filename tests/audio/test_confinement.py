"""Abilities that a confined process loses. Each is tried in a real one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

START = """
import errno, os, resource, signal, socket, sys, threading
from audio.confinement import confine
FAILURES = (OSError, MemoryError, RuntimeError, ValueError)
confine({cpu_s})
"""

TRIES = {
    "a file to read": "open('/etc/hostname')",
    "a file to write": "open('/tmp/parlance-confined', 'w')",
    "a pipe": "os.pipe()",
    "a socket": "socket.socket()",
    "a thread": "threading.Thread(target=print).start()",
    "a child": "os.fork()",
    "another program": "os.execv('/bin/true', ['true'])",
    "a signal to the parent": "os.kill(os.getppid(), 0)",
    "other limits": "resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))",
    "memory": "bytearray(600 * 1024**2)",
    "a link": "os.symlink('/', '/tmp/parlance-confined')",
    "a folder's names": "os.listdir('/')",
    "a file, with a descriptor free": "os.close(0); open('/etc/hostname')",
    "a socket, with a descriptor free": "socket.socket()",
}


def run(script: str, cpu_s: int = 5) -> subprocess.CompletedProcess[str]:
    script = START.format(cpu_s=cpu_s) + script
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)


def test_nothing_new_can_be_had() -> None:
    script = "".join(
        f"try:\n    {attempt}\n    print({name!r})\nexcept FAILURES:\n    pass\n" for name, attempt in TRIES.items()
    )
    done = run(script + "print('end')")
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


def test_what_is_left_works() -> None:
    done = run("print(len(bytes(300 * 1024**2)), sum(range(9)), sys.stdin.read())")
    assert done.stdout == f"{300 * 1024**2} 36 \n"


def test_time_ends() -> None:
    assert run("while True: pass", cpu_s=0).returncode in (-signal.SIGKILL, -signal.SIGXCPU)


def test_a_file_that_is_open_does_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb") as file:
        script = START.format(cpu_s=5) + "os.write(1, b'x')"
        done = subprocess.run([sys.executable, "-c", script], stdout=file, stderr=subprocess.PIPE, check=False)
    assert b"File too large" in done.stderr
    assert path.read_bytes() == b""
