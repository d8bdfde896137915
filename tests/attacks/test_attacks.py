"""The attacks of `python -m benchmarks.attacks` that need neither a real engine nor HAProxy, over engines that obey."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from benchmarks.attacks.__main__ import OTHER, attack_all, main
from benchmarks.attacks.attack import ATTACKS
from tests.attacks.places import LONG, ON_A_GRAPH, ON_REQUEST, PATIENT, WITHOUT_A_GRAPH
from tests.docs.serving import served


@dataclass(frozen=True)
class Serving:
    """The app over engines that obey, and a key of each of two organisations."""

    url: str
    key: str
    other_key: str


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with served(tmp_path_factory.mktemp("home"), "attacker", "bystander") as of:
        yield Serving(*of)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.timeouts] * (name in PATIENT)) for name in WITHOUT_A_GRAPH]
)
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
    serving: Serving, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ci: str | None, fails: bool
) -> None:
    monkeypatch.setenv("PARLANCE_KEY", serving.key)
    monkeypatch.setenv("CI", ci) if ci is not None else monkeypatch.delenv("CI", raising=False)
    with pytest.raises(SystemExit, match=str(fails)):
        main(["--base-url", serving.url, "--short", "forged-turns", "one-key-that-starves-others"])
    assert capsys.readouterr().out.count("not tried: ") == 2


@pytest.mark.parametrize(
    ("arguments", "key", "says"),
    [
        *(
            (["--base-url", url], "a-key", "--i-own-this-host")
            for url in ("http://192.0.2.1:8000", "http://example.org", "http://127.0.0.1.example.org")
        ),
        (["--base-url", "http://127.0.0.1:1"], "", "PARLANCE_KEY"),
        (["kindness"], "a-key", "duplicate-keys"),
    ],
)
def test_only_this_machine_is_attacked_with_a_key_and_by_attacks_that_exist(
    arguments: list[str], key: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PARLANCE_KEY", key)
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert says in capsys.readouterr().err


def test_every_attack_is_run_somewhere_and_says_what_it_tries() -> None:
    assert all(one.tries for one in ATTACKS.values())
    modules = {one.attempt.__module__ for one in ATTACKS.values()}
    assert len(modules) == 13, "a module of attacks is not imported by the command line"
    assert {*WITHOUT_A_GRAPH, *ON_A_GRAPH, *ON_REQUEST} == set(ATTACKS)
