"""The command line `python -m state`, and the audit of its acts."""

import asyncio
import csv
import io
import json
import os
import pwd
import shlex
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import anyio
import pytest

from contract.access import OPERATORS, Scope
from state import keys, open_state
from state.accounts import acts
from state.billing import usage
from state.cli import reports
from state.database.driver import driver
from tests.state.books import make_caller, reserve
from tests.state.conftest import Say

ROOT = Path(__file__).parent.parent.parent


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


def test_nonsense_is_one_sentence_and_exit_code_2(say: Say, acme: str) -> None:
    answers = {line: (named, *say(*shlex.split(line))) for line, named in NONSENSE}
    assert {line: answer for line, answer in answers.items() if not is_refusal(*answer)} == {}


def is_refusal(named: str, code: int, out: str, err: str) -> bool:
    return (code, out) == (2, "") and one_sentence(err) and named in err


NONSENSE = (
    ("org create x --plan gold", "gold"),
    ("org create x --plan free --entitle wings", "wings"),
    ("org create 'a b' --plan free", "a b"),
    ("org create acme --plan free", "already"),
    ("org change acme --plan gold", "gold"),
    ("org change acme", "nothing to change"),
    ("org change acme --requests-per-minute -1", "-1"),
    ("org models nobody", "nobody"),
    ("key create --org acme --scopes chat,fly", "fly"),
    ("key create --org acme --scopes ''", "scope"),
    ("key create --org nobody --scopes chat", "nobody"),
    ("key create --org acme --scopes chat --prefix a_b", "a_b"),
    ("key list --org nobody", "nobody"),
    ("key revoke nosuchid", "nosuchid"),
    ("budget set --org acme --limit-micro-eur -1", "-1"),
    ("budget set --org acme --limit-micro-eur much", "much"),
    ("budget set --org acme", "limit-micro-eur"),
    ("key create --org acme --scopes chat --for 'a while'", "a while"),
    ("key create --org acme --scopes chat --for 8", "30m, 8h or 7d"),
    ("key create --org acme --scopes chat --for 0m", "1m to 366d"),
    ("key create --org acme --scopes chat --for 367d", "1m to 366d"),
    ("budget set --org acme --limit-micro-eur 1 --every week", "week"),
    ("budget set --org acme --limit-micro-eur 1 --time-zone UTC", "--every month"),
    ("budget set --org acme --limit-micro-eur 1 --every month --time-zone Mars", "Mars"),
    ("budget set --org acme --limit-micro-eur 1 --every month --time-zone ../x", "../x"),
    ("usage --org nobody", "nobody"),
    ("usage --user nobody", "nobody"),
    ("usage --org acme --user nobody", "nobody"),
    ("audit --since yesterday", "yesterday"),
    ("usage --since yesterday", "yesterday"),
    ("usage --by mood", "mood"),
    ("usage --format xml", "xml"),
    ("fly", "fly"),
    ("", "required"),
)


def test_a_new_key_is_printed_alone_and_its_list_starts_with_the_id_and_never_shows_it(say: Say, acme: str) -> None:
    code, out, err = say("key", "create", "--org", acme, "--scopes", "all", "--label", "laptop")
    text = out.removesuffix("\n")
    assert (code, err) == (0, "")
    assert keys.read(text) is not None
    _, listed, _ = say("key", "list", "--org", acme)
    header, row = listed.splitlines()
    assert header.split()[0] == "id"
    assert row.split()[:2] == [text.split("_")[1], "valid"]
    assert all((scope in row) == (scope not in OPERATORS) for scope in Scope)
    assert text not in listed
    assert "laptop" in row
    for _ in range(2):
        assert say("key", "revoke", row.split()[0])[0] == 0
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
    words = "--plan enterprise --entitle voices --requests-per-minute 7"
    assert say("org", "change", acme, *words.split())[0] == 0
    row = say("org", "list")[1].splitlines()[1].split()
    assert row[1:4] == ["acme", "enterprise", "voices"]
    assert "7" in row


def test_budgets_are_set_lifted_and_listed(say: Say, acme: str) -> None:
    assert say("budget", "set", "--org", acme, "--limit-micro-eur", "0")[0] == 0
    for named in ("new user eve of acme", "user eve of acme"):
        words = ("--org", acme, "--user", "eve", "--limit-micro-eur", "5000000")
        assert say("budget", "set", *words)[1].startswith(f"{named} has")
    rows = [line.split() for line in say("budget", "list", "--org", acme)[1].splitlines()]
    assert rows[1:] == [["(organisation)", *["0"] * 5, "-"], ["eve", "5000000", "0", "0", "0", "5000000", "-"]]
    assert say("budget", "set", "--org", acme, "--unlimited")[0] == 0
    assert say("budget", "list", "--org", acme)[1].splitlines()[1].split()[1] == "-"


def test_usage_has_the_documented_shape_in_every_format(say: Say, acme: str, tmp_path: Path) -> None:
    asyncio.run(bill(tmp_path, "billed", 3))
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


def test_reports_are_the_same_however_few_lines_a_transaction_reads(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(bill(tmp_path, "billed", 5))
    asyncio.run(bill(tmp_path, "other", 2))
    words = [("usage",), ("usage", "--org", "other"), ("usage", "--by", "organisation,user"), ("usage", "--by", "day")]
    for options in (each for format in ("csv", "json") for each in [(*word, "--format", format) for word in words]):
        whole = say(*options)
        for slice_lines in (1, 2, 5, 6):
            with monkeypatch.context() as patch:
                patch.setattr(usage, "SLICE_LINES", slice_lines)
                patch.setattr(reports, "PAGE_LINES", 2)
                assert say(*options) == whole, slice_lines
    assert len(json.loads(say("usage", "--format", "json")[1])) == 7
    users = json.loads(say("usage", "--by", "user", "--format", "json")[1])
    assert [(row["user"], row["organisation"]) for row in users] == [("eve", "billed"), ("eve", "other")]


def test_sums_add_up_to_the_budget(say: Say, tmp_path: Path) -> None:
    asyncio.run(bill(tmp_path, "billed", 5))
    for by in ("organisation", "user", "key", "model", "line", "unit", "day", "model,day"):
        sums = json.loads(say("usage", "--by", by, "--format", "json")[1])
        assert [(row["requests"], row["quantity"], row["cost_micro_eur"]) for row in sums] == [(5, 1550, 210)]
    spent = [line.split()[2] for line in say("budget", "list", "--org", "billed")[1].splitlines()[1:]]
    assert spent == ["210", "210"]
    assert say("check")[1] == "usage, budgets and reservations add up\n"
    with driver.connect(tmp_path / "parlance.db") as books:
        books.execute("UPDATE usage_lines SET recovered = 1")
    assert "add up; 5 usage lines were recovered from processes that died" in say("check")[1]


def test_usage_can_be_narrowed(say: Say, tmp_path: Path) -> None:
    asyncio.run(bill(tmp_path, "billed", 2))
    counts = {
        **dict.fromkeys(("--user eve", "--org billed --user eve", "--key k3Jd92Xa", "--model m"), 2),
        **dict.fromkeys(("--org billed --key other", "--model other", "--until 2020-01-01"), 0),
        "--since 2020-01-01": 2,
    }
    lines = {words: json.loads(say("usage", *words.split(), "--format", "json")[1]) for words in counts}
    assert {words: len(found) for words, found in lines.items()} == counts


def test_books_that_do_not_add_up_are_told_with_exit_code_1(say: Say, tmp_path: Path) -> None:
    asyncio.run(bill(tmp_path, "billed", 2))
    with driver.connect(tmp_path / "parlance.db") as books:
        books.execute("UPDATE budgets SET spent_micro_eur = 7")
    code, out, err = say("check")
    assert (code, out) == (1, "")
    assert "80" in err or "81" in err


def test_rotation_keeps_keys_alive_once(say: Say, acme: str) -> None:
    say("key", "create", "--org", acme, "--scopes", "chat")
    assert say("secret", "rotate")[0] == 0
    code, _, err = say("secret", "rotate")
    assert code == 2
    assert one_sentence(err)
    assert say("secret", "rotate", "--force")[0] == 0
    assert "missing here" in say("secret", "list")[1]


UNREACHABLE = "postgresql://nobody:hunter2@127.0.0.1:1/x"


def test_an_address_that_cannot_be_used_is_one_sentence(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("mysql://x/y", "sqlite://", "nonsense", "sqlite:///:memory:", UNREACHABLE):
        monkeypatch.setenv("PARLANCE_DATABASE_URL", url)
        code, out, err = say("org", "list")
        assert (code, out) == (1 if url == UNREACHABLE else 2, ""), url
        assert one_sentence(err)
        assert "hunter2" not in err


@pytest.mark.parametrize("file", ["missing", "empty", "without tables"])
def test_only_a_start_migrate_and_org_create_make_a_private_database(say: Say, tmp_path: Path, file: str) -> None:
    database = tmp_path / "parlance.db"
    database.unlink() if file == "missing" else database.write_bytes(b"")
    if file == "without tables":
        with closing(driver.connect(database)) as raw:
            raw.execute("PRAGMA user_version = 1")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for words in ("check", "org list", "usage", "key create --org acme --scopes chat", "secret rotate"):
        code, out, err = say(*words.split())
        assert (code, out, one_sentence(err)) == (2, "", True), words
        assert f"no database in {database}; PARLANCE_HOME or PARLANCE_DATABASE_URL names" in err
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert say(*("migrate" if file == "empty" else "org create acme --plan pro").split())[0] == 0
    database.chmod(0o644)  # as a copy may be
    assert (say("check")[0], database.stat().st_mode & 0o777) == (0, 0o600)


def test_it_runs_as_a_module_beside_an_open_server_whose_first_start_is_an_act(say: Say, tmp_path: Path) -> None:
    environ = os.environ | {"PARLANCE_HOME": str(tmp_path)}

    async def revoke(key_id: str) -> subprocess.CompletedProcess[bytes]:
        words = [sys.executable, "-m", "state", "key", "revoke", key_id]
        return await anyio.run_process(words, cwd=ROOT, env=environ, check=False)

    async def serve() -> str:
        state = await open_state(tmp_path)
        text = await state.ensure_demo(tmp_path)
        assert await state.ensure_demo(tmp_path) is None
        caller = await state.accounts.authenticate(f"Bearer {text}")
        assert (await revoke(caller.key_id)).returncode == 0
        rows = await state.database.run(lambda c: c.exec_driver_sql("SELECT revoked_at FROM api_keys").scalars().all())
        assert rows[0] is not None
        refused = await revoke("nosuchid")
        assert (refused.returncode, refused.stdout, one_sentence(refused.stderr.decode())) == (2, b"", True)
        await state.close()
        return caller.key_id

    key_id = asyncio.run(serve())
    first, *later = audited(say)
    assert (first["act"], first["result"]) == ("first start", f"done: organisation demo with key {key_id}")
    assert [line["act"] for line in later] == [f"key revoke {key_id}", "key revoke nosuchid"]


def audited(say: Say) -> Any:
    return json.loads(say("audit", "--format", "json")[1])


def test_each_act_leaves_a_line_and_what_only_reads_leaves_none(say: Say, acme: str) -> None:
    key = say("key", "create", "--org", acme, "--scopes", "chat", "--user", "eve", "--for", "8h")[1].strip()
    key_id = key.split("_")[1]
    typed = [
        *("org models acme --only a,b", "org default-decision-model acme decision-v2", "org change acme --plan pro"),
        "budget set --org acme --limit-micro-eur 5 --every month",
        *(f"key revoke {key_id}", "secret rotate", "migrate"),
    ]
    for act in typed:
        say(*act.split())
    reading = ["org list", "org models acme", "org default-decision-model acme", "usage", "key list --org acme"]
    reading += ["budget list --org acme", "audit", "secret list", "check", "--version"]
    assert {words: say(*words.split())[0] for words in reading} == dict.fromkeys(reading, 0)
    lines = audited(say)
    results = [
        "done: a\nb",
        "done: decision-v2",
        "done: organisation acme changed",
        "done: organisation acme has a limit of 5 micro-EUR every month (UTC); running servers know within 5 seconds",
        f"done: key {key_id} is revoked; running servers refuse it within 5 seconds",
        "done: rotated; restart the server. Keys move to the new generation when they are used",
        lines[-1]["result"],
    ]
    assert [(line["act"], line["result"]) for line in lines] == [
        ("org create acme --plan standard", "done: organisation acme on plan standard"),
        ("key create --org acme --scopes chat --user eve --for 8h", f"done: prl_{key_id}_..."),
        *zip(typed, results, strict=True),
    ]
    assert lines[-1]["result"].startswith("done: the schema is at 00")
    who = pwd.getpwuid(os.getuid()).pw_name, socket.gethostname()
    assert {(line["os_user"], line["host"]) for line in lines} == {who}


def test_an_act_that_is_refused_leaves_its_line_and_nothing_else(say: Say, acme: str) -> None:
    assert say("key", "create", "--org", acme, "--user", "eve", "--scopes", "fly")[0] == 2
    assert say("migrate", "--to", "7")[0] == 2
    refusals = audited(say)[1:]
    assert [line["result"].partition(":")[0] for line in refusals] == ["refused", "refused"]
    assert "`fly`" in refusals[0]["result"]
    assert "`7`" in refusals[1]["result"]
    assert "eve" not in say("budget", "list", "--org", acme)[1]


def test_an_act_and_its_audit_are_written_both_or_neither(say: Say, acme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(acts, "record", Mock(side_effect=OSError("the disk is full")))
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
