"""The attacks of `python -m benchmarks.attacks` that need neither a real engine nor HAProxy, over engines that obey."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.attacks.__main__ import OTHER, attack_all, main
from benchmarks.attacks.attack import ATTACKS
from tests.attacks.places import LONG, ON_A_GRAPH, ON_REQUEST, WITHOUT_A_GRAPH
from tests.docs.pages import ROOT


@dataclass(frozen=True)
class Serving:
    """The app over engines that obey, and a key of each of two organisations."""

    url: str
    key: str
    other_key: str


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    command = [sys.executable, "-m", "tests.api.serving", str(tmp_path_factory.mktemp("home"))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    # As configs/ray.env has it: Serve takes no more from a socket than the app reads.
    environment = os.environ | {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, env=environment, **pipes) as process:
        assert process.stdin
        assert process.stdout
        port, key, other_key = process.stdout.readline().split()
        yield Serving(f"http://127.0.0.1:{port}", key, other_key)
        process.stdin.close()


@pytest.mark.parametrize("name", WITHOUT_A_GRAPH)
async def test_attack_is_held(serving: Serving, name: str) -> None:
    chosen = [ATTACKS[name]]
    (verdict,) = await attack_all(serving.url, serving.key, serving.other_key, chosen, is_short=name not in LONG)
    assert verdict.passed, verdict.saw


def test_what_is_not_held_is_exit_1_and_said(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PARLANCE_KEY", serving.key)
    monkeypatch.setenv(OTHER, serving.other_key)
    # A transcriber that obeys takes a recording for commands, and breaks when it is none.
    with pytest.raises(SystemExit, match="True"):
        main(["--base-url", serving.url, "--short", "hostile-audio"])
    assert "502" in (shown := capsys.readouterr().out)
    assert shown.rstrip().endswith("**not held** |")


@pytest.mark.parametrize(("ci", "fails"), [(None, False), ("", False), ("true", True)])
def test_what_cannot_be_tried_is_a_failure_in_ci_only(
    serving: Serving,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ci: str | None,
    fails: bool,
) -> None:
    monkeypatch.setenv("PARLANCE_KEY", serving.key)
    monkeypatch.setenv("CI", ci) if ci is not None else monkeypatch.delenv("CI", raising=False)
    with pytest.raises(SystemExit, match=str(fails)):
        main(["--base-url", serving.url, "--short", "forged-turns", "one-key-that-starves-others"])
    assert capsys.readouterr().out.count("not tried: ") == 2


@pytest.mark.parametrize("url", ["http://192.0.2.1:8000", "http://example.org", "http://127.0.0.1.example.org"])
def test_only_this_machine_is_attacked(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--base-url", url])
    assert "--i-own-this-host" in capsys.readouterr().err


def test_without_a_key_nothing_is_attacked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("PARLANCE_KEY", raising=False)
    with pytest.raises(SystemExit, match="2"):
        main(["--base-url", "http://127.0.0.1:1"])
    assert "PARLANCE_KEY" in capsys.readouterr().err


def test_an_unknown_attack_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["kindness"])
    assert "duplicate-keys" in capsys.readouterr().err


def test_every_attack_is_run_somewhere() -> None:
    assert {*WITHOUT_A_GRAPH, *ON_A_GRAPH, *ON_REQUEST} == set(ATTACKS)


def test_each_attack_says_what_it_tries_and_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--list"])
    shown = capsys.readouterr().out
    assert all(one.tries and f"{one.name} " in shown for one in ATTACKS.values())
    modules = {Path(sys.modules[one.attempt.__module__].__file__ or "").name for one in ATTACKS.values()}
    assert len(modules) == 13, "a module of attacks is not imported by the command line"
