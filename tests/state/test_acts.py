"""What operators did on the command line, as `python -m state audit` shows it."""

from __future__ import annotations

import csv
import io
import json
import os
import pwd
import socket
from pathlib import Path

import anyio
import pytest

from state import keys, open_state
from state.accounts import acts
from tests.state.test_cli import Say, acme, say

__all__ = ["acme", "say"]


def audited(say: Say) -> list[dict[str, str]]:
    shown: list[dict[str, str]] = json.loads(say("audit", "--format", "json")[1])
    return shown


def test_each_act_leaves_a_line_and_what_only_reads_leaves_none(say: Say, acme: str) -> None:
    key = say("key", "create", "--org", acme, "--scopes", "chat", "--user", "eve", "--for", "8h")[1].strip()
    key_id = key.split("_")[1]
    say("org", "models", acme, "--only", "a,b")
    say("org", "default-decision-model", acme, "decision-v2")
    say("org", "change", acme, "--plan", "pro")
    say("budget", "set", "--org", acme, "--limit-micro-eur", "5", "--every", "month")
    say("key", "revoke", key_id)
    say("secret", "rotate")
    say("migrate")
    for reading in (
        ("org", "list"), ("org", "models", acme), ("org", "default-decision-model", acme), ("usage",),
        ("key", "list", "--org", acme), ("budget", "list", "--org", acme), ("audit",), ("secret", "list"),
        ("check",), ("--version",),
    ):  # fmt: skip
        assert say(*reading)[0] == 0
    lines = audited(say)
    assert [(line["act"], line["result"]) for line in lines] == [
        ("org create acme --plan standard", "done: organisation acme on plan standard"),
        ("key create --org acme --scopes chat --user eve --for 8h", f"done: prl_{key_id}_..."),
        ("org models acme --only a,b", "done: a\nb"),
        ("org default-decision-model acme decision-v2", "done: decision-v2"),
        ("org change acme --plan pro", "done: organisation acme changed"),
        (
            "budget set --org acme --limit-micro-eur 5 --every month",
            "done: organisation acme has a limit of 5 micro-EUR every month (UTC); "
            "running servers know within 5 seconds",
        ),
        (f"key revoke {key_id}", f"done: key {key_id} is revoked; running servers refuse it within 5 seconds"),
        ("secret rotate", "done: rotated; restart the server. Keys move to the new generation when they are used"),
        ("migrate", lines[-1]["result"]),
    ]
    assert lines[-1]["result"].startswith("done: the schema is at 00")
    assert {(line["os_user"], line["host"]) for line in lines} == {
        (pwd.getpwuid(os.getuid()).pw_name, socket.gethostname())
    }


def test_an_act_that_is_refused_leaves_its_line_and_nothing_else(say: Say, acme: str) -> None:
    assert say("key", "create", "--org", acme, "--user", "eve", "--scopes", "fly")[0] == 2
    assert say("migrate", "--to", "7")[0] == 2
    refusals = audited(say)[1:]
    assert [line["result"].partition(":")[0] for line in refusals] == ["refused", "refused"]
    assert "`fly`" in refusals[0]["result"]
    assert "`7`" in refusals[1]["result"]
    assert "eve" not in say("budget", "list", "--org", acme)[1]


def test_what_is_audited_of_an_act_is_written_with_it_or_not_at_all(
    say: Say, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(acts, "record", fail)
        assert say("org", "create", "other", "--plan", "pro")[0] == 1
    assert "other" not in say("org", "list")[1]
    assert len(audited(say)) == 1


def test_no_key_and_no_secret_gets_into_the_audit_wherever_it_is_typed(say: Say, acme: str, tmp_path: Path) -> None:
    key, secret = keys.mint(), "5e" * 32
    pasted = (key.text, key.text[:-3], key.text.removeprefix("prl_"), f"x{key.text}", secret, f"a={secret}")
    for text in pasted:
        assert say("key", "revoke", text)[0] == 2
        say("key", "create", "--org", acme, "--scopes", "chat", "--label", text)
        assert say("org", "create", text, "--plan", "gold")[0] == 2
    shown = say("audit", "--format", "json")[1]
    hidden = key.text.split("_")[2]
    assert hidden[:20] not in shown
    assert secret[:20] not in shown
    created = [line["result"] for line in audited(say) if line["result"].startswith("done: prl_")]
    assert len(created) == len(pasted)
    assert all(len(result) == len("done: prl_12345678_...") for result in created)


def test_audit_comes_in_every_format_and_since_a_day(say: Say, acme: str) -> None:
    say("org", "create", "=x", "--plan", "pro")
    columns = ["at", "os_user", "host", "act", "result"]
    assert [list(line) for line in audited(say)] == [columns] * 2
    rows = list(csv.DictReader(io.StringIO(say("audit", "--format", "csv")[1])))
    assert [list(row) for row in rows] == [columns] * 2
    assert rows[0]["at"].endswith("Z")
    assert say("audit")[1].splitlines()[0].split() == columns
    assert len(say("audit", "--since", "2020-01-01")[1].splitlines()) == 3
    assert json.loads(say("audit", "--since", "2999-01-01", "--format", "json")[1]) == []


def test_the_first_start_is_an_act(say: Say, tmp_path: Path) -> None:
    async def start() -> str:
        state = await open_state(tmp_path)
        text = await state.ensure_demo(tmp_path)
        assert await state.ensure_demo(tmp_path) is None
        await state.close()
        assert text
        return text.split("_")[1]

    key_id = anyio.run(start)
    (line,) = audited(say)
    assert (line["act"], line["result"]) == ("first start", f"done: organisation demo with key {key_id}")


def test_key_list_shows_when_a_key_expires(say: Say, acme: str) -> None:
    for words in (("--for", "30m"), ("--for", "7d"), ()):
        assert say("key", "create", "--org", acme, "--scopes", "chat", *words)[0] == 0
    header, *rows = say("key", "list", "--org", acme)[1].splitlines()
    column = header.index("expires")
    shown = [row[column:].split()[0] for row in rows]
    assert shown[2] == "-"
    assert all(len(text) == len("2026-11-24T15:00:00Z") for text in shown[:2])
    assert shown[0] < shown[1]


def test_budget_set_keeps_what_it_does_not_name(say: Say, acme: str) -> None:
    setting = ("budget", "set", "--org", acme)
    berlin = ("--every", "month", "--time-zone", "Europe/Berlin")
    assert "every month (Europe/Berlin)" in say(*setting, "--limit-micro-eur", "5", *berlin)[1]
    assert "a limit of 7 micro-EUR every month (Europe/Berlin)" in say(*setting, "--limit-micro-eur", "7")[1]
    row = say("budget", "list", "--org", acme)[1].splitlines()[1]
    assert row.endswith("next (Europe/Berlin)")
    assert "every month" not in say(*setting, "--limit-micro-eur", "7", "--every", "never")[1]
    assert say("budget", "list", "--org", acme)[1].splitlines()[1].endswith("-")
