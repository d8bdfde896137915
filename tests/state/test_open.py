"""Opening and closing of the state, the clocks of its processes, and fifty planted secrets that appear in no output."""

import asyncio
import logging
import shutil
import time
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select

from contract.access import Scope
from contract.errors import STATE_UNAVAILABLE, ApiError
from state import keys, open_state
from state import open as opening
from state.accounts import api_keys, demo, organisations
from state.accounts.authentication import PEPPER
from state.billing import ledger
from state.billing.ledger import CLOSE_S, Ledger
from state.blobs.base import Blobs
from state.database.base import NOW_S, Clock, Database, RowRefused
from state.database.tables import api_keys as keys_table
from state.database.tables import reservations
from state.drafts import Drafts
from state.idempotency import Attempt, Idempotency
from state.keys import SECRET_VARIABLE, open_secrets, rotate
from tests.state.books import fault_of, make_caller, money, pass_time, reserve, until_money
from tests.state.crashing import make
from tests.state.doubles import WatchedDatabase
from tests.state.drafts import COST, HOLD, PLAN, Workshop
from tests.waiting import until


async def test_bytes_are_kept_in_the_home_or_where_they_are_told_to_be(tmp_path: Path) -> None:
    for url, folder in ((None, tmp_path / "bytes"), ((tmp_path / "elsewhere").as_uri(), tmp_path / "elsewhere")):
        state = await open_state(tmp_path, blobs_url=url)
        await state.blobs.put("a/b", b"x")
        assert (folder / "a" / "b").read_bytes() == b"x"
        state.signatures.verify("a/b", state.signatures.sign("a/b", 1 << 39, "GET"), "GET")
        await state.close()


async def test_kept_answers_leave_room_on_the_disk_of_the_database(tmp_path: Path) -> None:
    state = await open_state(tmp_path)
    assert 0 < state.idempotency.free_bytes() <= shutil.disk_usage(tmp_path).total
    await state.close()


ALONE = r"cannot share SQLite(?s:.*)PARLANCE_REDIS_URL(?s:.*)PARLANCE_BLOBS_URL"
NO_SECRET = f"a common secret: set {SECRET_VARIABLE}"


async def test_replicas_have_to_share_and_need_one_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    for database_url, redis_url, replicas, says in (
        ("sqlite:///x.db", None, 2, ALONE),
        ("postgresql://u@127.0.0.1:1/x", None, 1, NO_SECRET),
        (None, "redis://127.0.0.1:1", 1, NO_SECRET),
    ):
        with pytest.raises(ValueError, match=says):
            pytest.fail(f"{says}: {await open_state(tmp_path, database_url, redis_url, replicas=replicas)}")
    assert not (tmp_path / "secrets").exists()


async def test_a_server_with_another_secret_does_not_start(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = ("1a" * 32, "2b" * 32, "3c" * 32)

    async def start(secret: str) -> None:
        monkeypatch.setenv(SECRET_VARIABLE, secret)
        await (await open_state(tmp_path, database_url, upgrade=True)).close()

    await start(one)
    with pytest.raises(ValueError, match="secret differs from"):
        await start(two)
    # A rotation: the new one with the previous one behind it. From then on the old one alone is too old.
    await start(f"{two},{one}")
    await start(two)
    with pytest.raises(ValueError, match="secret differs from"):
        await start(one)
    with pytest.raises(ValueError, match="secret differs from"):
        await start(f"{three},{one}")


async def test_during_a_rotation_each_server_accepts_what_the_others_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, old, new = [], "1a" * 32, "2b" * 32
    for secrets in (old, f"{old},{new}", f"{new},{old}"):
        monkeypatch.setenv(SECRET_VARIABLE, secrets)
        states.append(await open_state(tmp_path))
    key = await states[0].ensure_demo(tmp_path)
    for one, other in (states[:2], states[1::-1], states[1:], states[:0:-1], states[1:]):
        other.signatures.verify("a", one.signatures.sign("a", 1 << 39, "GET"), "GET")
        assert (await one.accounts.authenticate(f"Bearer {key}")).org == "demo"
    for state in states:
        await state.close()


async def test_a_rotated_secret_of_the_home_is_not_refused_and_another_one_is(tmp_path: Path) -> None:
    first = await open_state(tmp_path)
    text = await first.ensure_demo(tmp_path)
    await first.close()
    rotate(tmp_path, {})
    second = await open_state(tmp_path)
    assert (await second.accounts.authenticate(f"Bearer {text}")).org == "demo"
    await second.close()
    (tmp_path / "secrets").unlink()
    with pytest.raises(ValueError, match="secret differs from that of the servers that used this database last"):
        await open_state(tmp_path)


async def test_everything_survives_closing(tmp_path: Path) -> None:
    first = await open_state(tmp_path)
    caller = await make_caller(first.database, 1000)
    workshop = Workshop(first.database, first.blobs, caller)
    workshop.store = first.drafts
    draft, waiting = await workshop.ready(), await workshop.order()
    _, own = await workshop.adopt(await workshop.ready())
    ticket = await first.tickets.issue(caller, "audio/webm", 1000)
    await first.blobs.put(blob := ticket.new_blob(), b"sound")
    assert await first.tickets.uploaded(ticket.id, blob)
    hold = await reserve(first.ledger, caller, 9)
    settling = asyncio.create_task(hold.settle(9, 1, "tokens"))
    await asyncio.sleep(0)
    await first.close()
    assert await settling == 9

    second = await open_state(tmp_path)
    assert await money(second.database, caller) == (9 + 2 * COST, HOLD)
    assert await second.voices.of(caller.org_id) == [own]
    assert await second.drafts.find(caller.org_id, draft.id) == draft
    assert await second.drafts.waiting(9) == [waiting.id]
    consumed = await second.tickets.consume(caller.org_id, ticket.id)
    assert await second.blobs.find(consumed.blob) == b"sound"
    await second.close()


@pytest.mark.parametrize("is_back", [True, False])
async def test_after_it_was_closed_no_task_of_a_state_runs_and_what_could_be_stored_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_back: bool
) -> None:
    monkeypatch.setattr(ledger, "CLOSE_S", CLOSE_S if is_back else 0.1)
    others = asyncio.all_tasks()
    state = await open_state(tmp_path)
    away = WatchedDatabase(state.database)
    state.idempotency._database = away
    if not is_back:  # else a bill would wait for the same pause
        state.ledger._database = away
    caller = await make_caller(state.database, 100)
    attempt = await state.idempotency.begin(caller, "POST /x", "k", "sha")
    assert isinstance(attempt, Attempt)
    hold = await reserve(state.ledger, caller, 9)
    away.fault = lambda _: STATE_UNAVAILABLE()
    await attempt.finish(200, {}, b"done")
    await hold.settle(9, 1, "tokens")
    if is_back:
        away.fault = lambda _: None
    await state.close()
    assert asyncio.all_tasks() == others

    again = await open_state(tmp_path)
    fault = "IDEMPOTENCY_FINISHED" if is_back else "IDEMPOTENCY_IN_PROGRESS"
    assert await fault_of(again.idempotency.begin(caller, "POST /x", "k", "sha")) == fault
    await again.close()


async def test_the_sweeper_survives_a_fault_of_the_program_and_logs_its_type_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(opening, "SWEEP_S", 0.01)
    secret = "planted-text"

    async def forget_old(_: Idempotency) -> None:
        raise ValueError(secret)

    monkeypatch.setattr(Idempotency, "forget_old", forget_old)
    state = await open_state(tmp_path)
    caller = await make_caller(state.database, 100)

    async def failed() -> bool:
        return "could not clean up: ValueError" in caplog.text and "forget_old" in caplog.text

    await until(failed)
    await reserve(Ledger(state.database), caller, 9)  # of a process that dies
    await state.database.run(lambda c: c.exec_driver_sql("UPDATE reservations SET lease_until = 1") and None)
    await until_money(state.database, caller, (0, 0))
    await state.close()
    assert "ValueError" in caplog.text
    assert secret not in caplog.text


async def test_a_store_of_bytes_that_does_not_answer_holds_up_neither_leases_nor_the_money_of_dead_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "SWEEP_S", 0.05)
    state = await open_state(tmp_path)
    caller, is_hung = await make_caller(state.database, 1000), asyncio.Event()
    await state.tickets.issue(caller, "audio/webm", 1000)

    async def hang(_: str) -> None:
        is_hung.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(state.blobs, "delete_all", hang)
    await pass_time(state.database, 86_400)  # the ticket is due
    await is_hung.wait()
    hold = await reserve(state.ledger, caller, 500)
    await pass_time(state.database, 100)
    left_s = select(reservations.c.lease_until - NOW_S).where(reservations.c.id == hold.entry.id)

    async def is_renewed() -> bool:
        return await state.database.run(lambda connection: connection.execute(left_s).scalar_one()) > 100

    await until(is_renewed, within_s=10)
    await reserve(Ledger(state.database), caller, 9)  # of a process that dies
    await state.database.run(lambda c: c.exec_driver_sql("UPDATE reservations SET lease_until = 1") and None)
    await hold.void()
    await state.ledger.settle_open()
    await until_money(state.database, caller, (0, 0))
    await state.close()


async def test_an_order_of_a_voice_can_have_what_this_process_holds_in_advance(tmp_path: Path) -> None:
    state = await open_state(tmp_path)
    caller = await make_caller(state.database, 100_000)
    ids = await state.database.run(lambda c: [organisations.ensure_user(c, caller.org_id, f"{n}", 0) for n in range(9)])
    for each in ids:
        await (await reserve(state.ledger, replace(caller, user_id=each), 10)).void()
    assert (await money(state.database, caller))[1] > 0
    about = {"model": "m", "line": "voice-design:m", "request_id": "req-1"}
    await state.drafts.order(caller, PLAN, estimate_micro_eur=100_000, **about)
    assert await money(state.database, caller) == (0, 100_000)
    assert await fault_of(state.drafts.order(caller, PLAN, estimate_micro_eur=1, **about)) == "QUOTA_EXCEEDED"
    await state.close()


async def test_many_first_starts_make_one_key_with_every_scope(tmp_path: Path) -> None:
    states = await asyncio.gather(*(open_state(tmp_path) for _ in range(4)))
    made = await asyncio.gather(*(state.ensure_demo(tmp_path) for state in states for _ in range(3)))
    (text,) = [text for text in made if text]
    assert (tmp_path / "demo.key").read_text() == f"{text}\n"
    assert (tmp_path / "demo.key").stat().st_mode & 0o777 == 0o600
    caller = await states[0].accounts.authenticate(f"Bearer {text}")
    assert (caller.org, caller.tariff.name, caller.scopes) == ("demo", "pro", frozenset(Scope))
    await asyncio.gather(*(state.close() for state in states))


async def test_a_first_start_that_died_is_finished_or_begins_again(tmp_path: Path) -> None:
    state = await open_state(tmp_path)
    # Before its key was stored.
    (tmp_path / "demo.key.new").write_text(demo.keys.mint().text + "\n")
    text = await state.ensure_demo(tmp_path)
    assert text is not None
    assert (await state.accounts.authenticate(f"Bearer {text}")).org == "demo"
    # Before the file had its name.
    (tmp_path / "demo.key").rename(tmp_path / "demo.key.new")
    assert await state.ensure_demo(tmp_path) == text
    (tmp_path / "demo.key").unlink()
    assert await state.ensure_demo(tmp_path) is None, "a key that was thrown away does not come back"
    assert not (tmp_path / "demo.key").exists()
    await state.close()


async def test_a_server_that_is_away_is_told_without_its_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARLANCE_SECRET", "5e" * 32)
    with pytest.raises(ApiError) as caught:
        await open_state(tmp_path, "postgresql://nobody:hunter2@127.0.0.1:1/x")
    assert caught.value.fault.name == "STATE_UNAVAILABLE"
    assert "hunter2" not in caplog.text + repr(caught.value)


async def test_planted_secrets_show_up_nowhere(
    tmp_path: Path,
    database_url: str,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PARLANCE_SECRET", "5e" * 32)
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    state = await open_state(tmp_path, database_url, upgrade=True)
    pepper = open_secrets(tmp_path).derive(PEPPER)
    org_id = (await make_caller(state.database)).org_id
    planted = [keys.mint() for _ in range(50)]
    for key in planted:
        await state.database.run(lambda connection, key=key: store(connection, key, pepper, org_id))
        caller = await state.accounts.authenticate(f"Bearer {key.text}")
        texts += [repr(key), str(key), repr(caller), repr(await state.accounts.describe(caller))]
        for header in (f"Basic {key.text}", f"Bearer {key.text[:-1]}", f"Bearer {key.text}!", key.text):
            texts.append(await failure(state.accounts.authenticate(header)))
        # Twice the same row: the database's own message could quote it.
        texts.append(await failure(state.database.run(lambda c, key=key: store(c, key, pepper, org_id))))
        await state.database.run(lambda connection, key=key: api_keys.revoke(connection, key.public_id, 1))
    await broken_statements(state.database, planted[0], texts)
    rows = await state.database.run(lambda connection: api_keys.list_keys(connection, org_id))
    await state.close()
    texts += [repr(state.secrets), repr(state.accounts), repr(pepper), repr(planted)]

    captured = capsys.readouterr()
    everything = "\n".join([*texts, caplog.text, captured.out, captured.err])
    stored = repr([tuple(row) for row in rows])
    content = content_of(database_url)
    for key in planted:
        hidden = key.text.split("_")[2]
        assert hidden[:43] not in everything
        assert hidden[:43] not in stored
        assert hidden[:43].encode() not in content
        assert repr(pepper.sign(key.text.encode())) not in everything
    roots = (*state.secrets.roots, *pepper.keys.values())
    assert all(root.hex() not in everything and repr(root) not in everything for root in roots)
    assert not any(root in content for root in roots)


def content_of(url: str) -> bytes:
    """Of the file of a database; nothing where it is a server."""
    file = Path(url.removeprefix("sqlite:///"))
    return file.read_bytes() if file.is_file() else b""


async def broken_statements(database: Database, key: keys.Key, texts: list[str]) -> None:
    def missing_column(connection: Connection) -> None:
        connection.execute(insert(keys_table), {"public_id": "x", "digest": key.text.encode(), "hint": key.text})

    texts.append(await failure(database.run(missing_column)))


async def failure(work) -> str:
    try:
        await work
    except (ApiError, RowRefused) as error:
        return "".join(traceback.format_exception(error)) + repr(error) + str(error)
    pytest.fail("this had to fail")


def store(connection: Connection, key: keys.Key, pepper, org_id: int) -> None:
    api_keys.store(
        connection, key, pepper, org_id=org_id, user_id=None, scopes=frozenset({Scope.CHAT}), label=None, now_s=0
    )


HOUR_S = 3600


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
async def test_a_node_whose_clock_is_an_hour_off_frees_and_loses_nothing(
    database: Database, blobs: Blobs, monkeypatch: pytest.MonkeyPatch, off_s: int
) -> None:
    """Neither money nor drafts, which it takes from no worker."""
    caller, about = await make_caller(database, 900), {"model": "m", "line": "l", "estimate_micro_eur": 60}
    right, wrong = Ledger(database), Ledger(database)
    hold = await reserve(right, caller, 30)
    drafts = Drafts(database, blobs, await Clock.by(database))
    draft = await drafts.order(caller, PLAN, **about, request_id="r")  # type: ignore[arg-type]
    held = await drafts.claim(draft.id)
    assert held is not None

    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + off_s)
    assert await wrong.reap() == 0
    theirs = await reserve(wrong, caller, 40)
    clock = await Clock.by(database)
    assert abs(clock() - real()) < 30
    others = Drafts(database, blobs, clock)
    await others.expire()
    await others.sweep()
    assert await others.waiting(9) == []
    assert await others.claim(draft.id) is None
    ordered = await others.order(caller, PLAN, **about, request_id="r2")  # type: ignore[arg-type]

    monkeypatch.setattr(time, "time", real)
    assert await right.reap() == 0
    assert await money(database, caller) == (0, 70 + 2 * 60)
    assert await hold.settle(30, 1, "tokens") == 30
    assert await theirs.settle(40, 1, "tokens") == 40
    assert await make(drafts, blobs, held) is not None
    assert await drafts.claim(ordered.id) is not None
    assert await money(database, caller) == (70 + COST, 60)
