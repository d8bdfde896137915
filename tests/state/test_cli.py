import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from contract.access import OPERATORS, Scope
from state import keys, open_state
from state.__main__ import main
from state.billing import usage
from state.cli import reports
from tests.state.books import make_caller, reserve

ROOT = Path(__file__).parent.parent.parent

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs one command line in this process. Returns exit code, stdout and stderr."""
    shutil.copy(migrated, tmp_path / "parlance.db")
    monkeypatch.setenv("PARLANCE_HOME", str(tmp_path))
    monkeypatch.delenv("PARLANCE_DATABASE_URL", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def acme(say: Say) -> str:
    assert say("org", "create", "acme", "--plan", "standard")[0] == 0
    return "acme"


async def bill(home: Path, caller_org: str, lines: int) -> None:
    state = await open_state(home)
    caller = await make_caller(state.database, 1_000_000, 1_000_000, org=caller_org)
    for number in range(lines):
        hold = await reserve(state.ledger, caller, 50, f"=req-{number}")
        await hold.settle(40 + number, 310, "tokens", {"input_tokens": 300, "output_tokens": 10} if number else None)
    await state.close()


def one_sentence(text: str) -> bool:
    return text.endswith("\n") and text.count("\n") == 1 and len(text) < 300


def test_key_create_prints_only_the_key(say: Say, acme: str) -> None:
    code, out, err = say("key", "create", "--org", acme, "--scopes", "chat,embeddings", "--user", "eve")
    assert (code, err) == (0, "")
    assert keys.read(out.removesuffix("\n")) is not None


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("org", "create", "x", "--plan", "gold"), "gold"),
        (("org", "create", "x", "--plan", "free", "--entitle", "wings"), "wings"),
        (("org", "create", "a b", "--plan", "free"), "a b"),
        (("org", "create", "acme", "--plan", "free"), "already"),
        (("org", "change", "acme", "--plan", "gold"), "gold"),
        (("org", "change", "acme"), "nothing to change"),
        (("org", "change", "acme", "--requests-per-minute", "-1"), "-1"),
        (("org", "models", "nobody"), "nobody"),
        (("key", "create", "--org", "acme", "--scopes", "chat,fly"), "fly"),
        (("key", "create", "--org", "acme", "--scopes", ""), "scope"),
        (("key", "create", "--org", "nobody", "--scopes", "chat"), "nobody"),
        (("key", "create", "--org", "acme", "--scopes", "chat", "--prefix", "a_b"), "a_b"),
        (("key", "list", "--org", "nobody"), "nobody"),
        (("key", "revoke", "nosuchid"), "nosuchid"),
        (("budget", "set", "--org", "acme", "--limit-micro-eur", "-1"), "-1"),
        (("budget", "set", "--org", "acme", "--limit-micro-eur", "much"), "much"),
        (("budget", "set", "--org", "acme"), "limit-micro-eur"),
        (("key", "create", "--org", "acme", "--scopes", "chat", "--for", "a while"), "a while"),
        (("key", "create", "--org", "acme", "--scopes", "chat", "--for", "8"), "30m, 8h or 7d"),
        (("key", "create", "--org", "acme", "--scopes", "chat", "--for", "0m"), "1m to 366d"),
        (("key", "create", "--org", "acme", "--scopes", "chat", "--for", "367d"), "1m to 366d"),
        (("budget", "set", "--org", "acme", "--limit-micro-eur", "1", "--every", "week"), "week"),
        (("budget", "set", "--org", "acme", "--limit-micro-eur", "1", "--time-zone", "UTC"), "--every month"),
        (
            ("budget", "set", "--org", "acme", "--limit-micro-eur", "1", "--every", "month", "--time-zone", "Mars"),
            "Mars",
        ),
        (
            ("budget", "set", "--org", "acme", "--limit-micro-eur", "1", "--every", "month", "--time-zone", "../x"),
            "../x",
        ),
        (("usage", "--org", "nobody"), "nobody"),
        (("usage", "--user", "nobody"), "nobody"),
        (("usage", "--org", "acme", "--user", "nobody"), "nobody"),
        (("audit", "--since", "yesterday"), "yesterday"),
        (("usage", "--since", "yesterday"), "yesterday"),
        (("usage", "--by", "mood"), "mood"),
        (("usage", "--format", "xml"), "xml"),
        (("fly",), "fly"),
        ((), "required"),
    ],
)
def test_nonsense_is_one_sentence_and_exit_code_2(say: Say, acme: str, words: tuple[str, ...], named: str) -> None:
    code, out, err = say(*words)
    assert (code, out) == (2, "")
    assert one_sentence(err)
    assert named in err


def test_key_list_starts_with_the_id_and_never_shows_the_key(say: Say, acme: str) -> None:
    text = say("key", "create", "--org", acme, "--scopes", "all", "--label", "laptop")[1].strip()
    _, listed, _ = say("key", "list", "--org", acme)
    header, row = listed.splitlines()
    assert header.split()[0] == "id"
    assert row.split()[:2] == [text.split("_")[1], "valid"]
    assert all((scope in row) == (scope not in OPERATORS) for scope in Scope)
    assert text not in listed
    assert "laptop" in row


def test_a_revoked_key_is_listed_as_revoked(say: Say, acme: str) -> None:
    key_id = say("key", "create", "--org", acme, "--scopes", "chat")[1].split("_")[1]
    for _ in range(2):
        assert say("key", "revoke", key_id)[0] == 0
    assert say("key", "list", "--org", acme)[1].splitlines()[1].split()[1] == "revoked"


def test_models_and_the_default_decision_model_are_set_and_shown(say: Say, acme: str) -> None:
    assert say("org", "models", acme)[1] == "all models of the server\n"
    assert say("org", "models", acme, "--only", "b,a")[1] == "a\nb\n"
    assert say("org", "models", acme)[1] == "a\nb\n"
    assert say("org", "models", acme, "--all")[1] == "all models of the server\n"
    assert say("org", "default-decision-model", acme)[1] == "the server's default\n"
    assert say("org", "default-decision-model", acme, "decision-v2")[1] == "decision-v2\n"
    assert say("org", "default-decision-model", acme, "none")[1] == "the server's default\n"


def test_an_organisation_can_change(say: Say, acme: str) -> None:
    assert (
        say("org", "change", acme, "--plan", "enterprise", "--entitle", "voices", "--requests-per-minute", "7")[0] == 0
    )
    row = say("org", "list")[1].splitlines()[1].split()
    assert row[1:4] == ["acme", "enterprise", "voices"]
    assert "7" in row


def test_budgets_are_set_lifted_and_listed(say: Say, acme: str) -> None:
    assert say("budget", "set", "--org", acme, "--limit-micro-eur", "0")[0] == 0
    assert say("budget", "set", "--org", acme, "--user", "eve", "--limit-micro-eur", "5000000")[0] == 0
    rows = [line.split() for line in say("budget", "list", "--org", acme)[1].splitlines()]
    assert rows[1:] == [["(organisation)", *["0"] * 5, "-"], ["eve", "5000000", "0", "0", "0", "5000000", "-"]]
    assert say("budget", "set", "--org", acme, "--unlimited")[0] == 0
    assert say("budget", "list", "--org", acme)[1].splitlines()[1].split()[1] == "-"


def test_usage_has_the_documented_shape_in_every_format(say: Say, acme: str, tmp_path: Path) -> None:
    anyio.run(bill, tmp_path, "billed", 3)
    lines = json.loads(say("usage", "--org", "billed", "--format", "json")[1])
    columns = ["at", "organisation", "user", "key_id", "request_id", "line", "model", "quantity", "unit"]
    columns += ["quantities", "cost_micro_eur", "took_ms", "waited_ms"]
    assert [list(line) for line in lines] == [columns] * 3
    assert [line["cost_micro_eur"] for line in lines] == [40, 41, 42]
    assert (lines[0]["organisation"], lines[0]["user"], lines[0]["quantity"]) == ("billed", "eve", 310)
    assert lines[0]["at"].endswith("Z")
    assert [line["quantities"] for line in lines] == [None, *[{"input_tokens": 300, "output_tokens": 10}] * 2]

    rows = list(csv.DictReader(io.StringIO(say("usage", "--org", "billed", "--format", "csv")[1])))
    assert list(rows[0]) == ["id", *columns]
    # A request id that a client chose must not become a formula in a spreadsheet.
    assert rows[0]["request_id"] == "'=req-0"
    assert [row["quantities"] for row in rows[:2]] == ["", "input_tokens=300 output_tokens=10"]

    table = say("usage", "--org", "billed")[1].splitlines()
    assert table[0].split() == ["id", *columns]
    assert len(table) == 4
    assert "input_tokens=300 output_tokens=10" in table[2]
    assert json.loads(say("usage", "--org", acme, "--format", "json")[1]) == []


@pytest.mark.parametrize("slice_lines", [1, 2, 5, 6])
def test_reports_are_the_same_however_few_lines_a_transaction_reads(
    say: Say, tmp_path: Path, slice_lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    anyio.run(bill, tmp_path, "billed", 5)
    anyio.run(bill, tmp_path, "other", 2)
    words = [("usage",), ("usage", "--org", "other"), ("usage", "--by", "organisation,user"), ("usage", "--by", "day")]
    for options in (each for format in ("csv", "json") for each in [(*word, "--format", format) for word in words]):
        whole = say(*options)
        with monkeypatch.context() as patch:
            patch.setattr(usage, "SLICE_LINES", slice_lines)
            patch.setattr(reports, "PAGE_LINES", 2)
            assert say(*options) == whole
    assert len(json.loads(say("usage", "--format", "json")[1])) == 7


def test_sums_add_up_to_the_budget(say: Say, tmp_path: Path) -> None:
    anyio.run(bill, tmp_path, "billed", 5)
    for by in ("organisation", "user", "key", "model", "line", "unit", "day", "model,day"):
        sums = json.loads(say("usage", "--by", by, "--format", "json")[1])
        assert [(row["requests"], row["quantity"], row["cost_micro_eur"]) for row in sums] == [(5, 1550, 210)]
    spent = [line.split()[2] for line in say("budget", "list", "--org", "billed")[1].splitlines()[1:]]
    assert spent == ["210", "210"]
    assert say("check")[0] == 0


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("--user", "eve"), 2), (("--org", "billed", "--user", "eve"), 2), (("--key", "k3Jd92Xa"), 2),
        (("--org", "billed", "--key", "other"), 0), (("--model", "m"), 2),
        (("--model", "other"), 0), (("--since", "2020-01-01"), 2), (("--until", "2020-01-01"), 0),
    ],
)  # fmt: skip
def test_usage_can_be_narrowed(say: Say, tmp_path: Path, words: tuple[str, ...], count: int) -> None:
    anyio.run(bill, tmp_path, "billed", 2)
    assert len(json.loads(say("usage", *words, "--format", "json")[1])) == count


def test_books_that_do_not_add_up_are_told_with_exit_code_1(say: Say, tmp_path: Path) -> None:
    anyio.run(bill, tmp_path, "billed", 2)
    anyio.run(_tamper, tmp_path)
    code, out, err = say("check")
    assert (code, out) == (1, "")
    assert "80" in err or "81" in err


async def _tamper(home: Path) -> None:
    state = await open_state(home)
    await state.database.run(lambda c: c.exec_driver_sql("UPDATE budgets SET spent_micro_eur = 7") and None)
    await state.close()


def test_rotation_keeps_keys_alive_once(say: Say, acme: str) -> None:
    say("key", "create", "--org", acme, "--scopes", "chat")
    assert say("secret", "rotate")[0] == 0
    code, _, err = say("secret", "rotate")
    assert code == 2
    assert one_sentence(err)
    assert say("secret", "rotate", "--force")[0] == 0
    assert "missing here" in say("secret", "list")[1]


@pytest.mark.parametrize(
    "words", [(), ("org",), ("key",), ("key", "create"), ("budget", "set"), ("usage",), ("secret",)]
)
def test_help_teaches(say: Say, words: tuple[str, ...]) -> None:
    code, out, err = say(*words, "--help")
    assert (code, err) == (0, "")
    assert "usage: python -m state" in out
    assert words or "first steps" in out


def test_a_database_that_cannot_be_reached_is_one_sentence(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLANCE_DATABASE_URL", "postgresql://nobody:hunter2@127.0.0.1:1/x")
    code, out, err = say("org", "list")
    assert (code, out) == (1, "")
    assert "hunter2" not in err


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "nonsense", "sqlite:///:memory:"])
def test_an_address_of_another_kind_is_refused(say: Say, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("PARLANCE_DATABASE_URL", url)
    code, _, err = say("org", "list")
    assert code == 2
    assert one_sentence(err)


def test_it_runs_as_a_module_beside_an_open_server(tmp_path: Path) -> None:
    async def serve() -> None:
        state = await open_state(tmp_path)
        text = await state.ensure_demo(tmp_path)
        caller = await state.accounts.authenticate(f"Bearer {text}")
        child = await anyio.run_process(
            [sys.executable, "-m", "state", "key", "revoke", caller.key_id],
            cwd=ROOT,
            env=os.environ | {"PARLANCE_HOME": str(tmp_path)},
        )
        assert child.returncode == 0
        rows = await state.database.run(lambda c: c.exec_driver_sql("SELECT revoked_at FROM api_keys").scalars().all())
        assert rows[0] is not None
        await state.close()

    anyio.run(serve)


def test_the_module_answers_with_exit_code_2(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "state", "org", "create", "x", "--plan", "gold"],
        cwd=ROOT, env=os.environ | {"PARLANCE_HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (child.returncode, child.stdout) == (2, "")
    assert one_sentence(child.stderr)
