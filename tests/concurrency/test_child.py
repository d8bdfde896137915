"""Children that run a program apart: what they see, how they answer, and that nothing of them is left."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from concurrency.child import Child, ChildError, Guard
from tests.docs.pages import ROOT
from tests.fork_server.node import is_alive
from tests.waiting import WITHIN_S, until

PROGRAM = """
import json, os, sys
from . import sibling

def main(*arguments):
    seen = {"environ": dict(os.environ), "folder": os.getcwd(), "arguments": arguments, "word": sibling.WORD,
            "leads": os.getpgid(0) == os.getpid(), "path": sys.path, "isolated": sys.flags.isolated}
    for line in sys.stdin:
        match line.strip():
            case "seen":
                print(json.dumps(seen), flush=True)
            case "long":
                print("x" * (1 << 22), flush=True)
            case "fork":
                print(os.fork() or __import__("time").sleep(600), flush=True)
            case "end":
                return
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "sibling.py").write_text("WORD = 'beside'")
    (tmp_path / "__init__.py").write_text("raise RuntimeError('not loaded')")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


def test_a_child_sees_its_siblings_and_nothing_of_its_parent(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLANCE_PEPPER", "secret")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    with Child(program, 1, 2.5, "a", environ={"LC_CTYPE": "C.UTF-8"}) as child:
        answer = child.ask(b"seen", 60)
    assert b"secret" not in answer
    assert b'"environ": {"LC_CTYPE": "C.UTF-8"}, "folder": "/", "arguments": [1, 2.5, "a"], "word": "beside"' in answer
    assert b'"leads": true' in answer
    assert b'"isolated": 1' in answer
    assert str(program.parent).encode() not in answer


@pytest.mark.parametrize("more", [0, 7, 30])
def test_a_child_gives_way_within_its_session_where_nice_values_count(program: Path, more: int) -> None:
    with Child(program, nice=more) as child:
        child.ask(b"seen", 60)
        assert os.getpriority(os.PRIO_PROCESS, child._process.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + more)
        assert os.getsid(child._process.pid) == os.getsid(0)


def test_a_long_answer_comes_whole(program: Path) -> None:
    with Child(program) as child:
        assert len(child.ask(b"long", 60)) == (1 << 22) + 1


@pytest.mark.parametrize(("line", "timeout_s"), [(b"silence", 0.05), (b"end", 60)])
def test_a_child_that_does_not_answer_is_an_error(program: Path, line: bytes, timeout_s: float) -> None:
    with Child(program) as child, pytest.raises(ChildError):
        child.ask(line, timeout_s)


def test_a_child_that_is_killed_ends_what_waits_for_it_and_what_it_forked(program: Path) -> None:
    with Child(program) as child:
        fork = int(child.ask(b"fork", 60))
        kill = threading.Timer(0.1, child.kill)
        kill.start()
        with pytest.raises(ChildError):
            child.ask(b"silence", 60)
        kill.join()
    assert not child.is_alive
    asyncio.run(until(lambda: not is_alive(fork)))
    child.kill()


def test_a_library_that_is_missing_is_said(program: Path) -> None:
    with pytest.raises(RuntimeError, match="`nowhere` is not installed"):
        Child(program, library="nowhere")


GUARDED = """
import os, subprocess, sys
from concurrency.child import Guard

sleeper = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, start_new_session=True)
guard = Guard([sleeper.pid])
print(sleeper.pid, flush=True)
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""


def test_what_is_guarded_ends_with_a_process_that_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", GUARDED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        sleeper = psutil.Process(int(parent.stdout.readline()))
        assert sleeper.is_running()
        parent.communicate("now\n")
    psutil.wait_procs([sleeper], timeout=WITHIN_S)
    assert not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE


def test_what_was_released_goes_on() -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        guard = Guard([sleeper.pid])
        guard.release()
        assert sleeper.poll() is None
        sleeper.kill()
