import asyncio
from pathlib import Path

import pytest

from contract.access import Scope
from contract.errors import ApiError
from state import open as opening
from state import open_state
from state.accounts import demo
from state.idempotency import Idempotency
from state.keys import SECRET_VARIABLE, rotate
from tests.state.books import make_caller, money, reserve
from tests.state.drafts import COST, HOLD, Workshop
from tests.waiting import until


@pytest.mark.parametrize(
    ("rows_at", "counters_at", "named"),
    [
        (None, "redis://localhost", "SQLite"),
        ("sqlite:///x.db", None, "SQLite"),
        ("postgresql://localhost/x", None, "Redis"),
    ],
)
async def test_replicas_that_would_not_share_are_refused(
    tmp_path: Path, rows_at: str | None, counters_at: str | None, named: str
) -> None:
    with pytest.raises(ValueError, match=f"2 ingress replicas.*{named}"):
        await open_state(tmp_path, rows_at, counters_at, replicas=2)


async def test_replicas_that_would_not_share_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"2 ingress replicas.*PARLANCE_BLOBS_URL"):
        await open_state(tmp_path, "postgresql://localhost/x", "redis://localhost", replicas=2)


async def test_bytes_are_kept_in_the_home_or_where_they_are_told_to_be(tmp_path: Path) -> None:
    for url, folder in ((None, tmp_path / "bytes"), ((tmp_path / "elsewhere").as_uri(), tmp_path / "elsewhere")):
        state = await open_state(tmp_path, blobs_url=url)
        await state.blobs.put("a/b", b"x")
        assert (folder / "a" / "b").read_bytes() == b"x"
        state.signatures.verify("a/b", state.signatures.sign("a/b", 1 << 39, "GET"), "GET")
        await state.close()


async def test_servers_that_share_something_need_one_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    for database_url, redis_url in (("postgresql://u@127.0.0.1:1/x", None), (None, "redis://127.0.0.1:1")):
        with pytest.raises(ValueError, match=f"a common secret: set {SECRET_VARIABLE}"):
            await open_state(tmp_path, database_url, redis_url)
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
        return "could not renew leases and clean up: ValueError" in caplog.text and "forget_old" in caplog.text

    await until(failed)
    await reserve(state.ledger, caller, 9)
    state.ledger._open.clear()
    await state.database.run(lambda c: c.exec_driver_sql("UPDATE reservations SET lease_until = 1") and None)

    async def given_back() -> bool:
        return await money(state.database, caller) == (0, 0)

    await until(given_back)
    await state.close()
    assert "ValueError" in caplog.text
    assert secret not in caplog.text


async def test_the_first_start_makes_a_key_with_every_scope(tmp_path: Path) -> None:
    state = await open_state(tmp_path)
    text = await state.ensure_demo(tmp_path)
    assert (tmp_path / "demo.key").read_text() == f"{text}\n"
    assert (tmp_path / "demo.key").stat().st_mode & 0o777 == 0o600
    caller = await state.accounts.authenticate(f"Bearer {text}")
    assert (caller.org, caller.tariff.name, caller.scopes) == ("demo", "pro", frozenset(Scope))
    assert await state.ensure_demo(tmp_path) is None
    await state.close()


async def test_many_first_starts_make_one_key(tmp_path: Path) -> None:
    states = await asyncio.gather(*(open_state(tmp_path) for _ in range(4)))
    made = await asyncio.gather(*(state.ensure_demo(tmp_path) for state in states for _ in range(3)))
    assert len([text for text in made if text]) == 1
    text = (tmp_path / "demo.key").read_text().strip()
    assert text in made
    assert (await states[0].accounts.authenticate(f"Bearer {text}")).org == "demo"
    await asyncio.gather(*(state.close() for state in states))


async def test_a_first_start_that_died_before_the_file_had_its_name_is_finished(tmp_path: Path) -> None:
    state = await open_state(tmp_path)
    text = await state.ensure_demo(tmp_path)
    (tmp_path / "demo.key").rename(tmp_path / "demo.key.new")
    assert await state.ensure_demo(tmp_path) == text
    assert (tmp_path / "demo.key").exists()
    await state.close()


async def test_a_first_start_that_died_before_the_key_was_stored_begins_again(tmp_path: Path) -> None:
    state = await open_state(tmp_path)
    (tmp_path / "demo.key.new").write_text(demo.keys.mint().text + "\n")
    text = await state.ensure_demo(tmp_path)
    assert text is not None
    assert (await state.accounts.authenticate(f"Bearer {text}")).org == "demo"
    await state.close()


async def test_a_key_that_was_thrown_away_does_not_come_back(tmp_path: Path) -> None:
    state = await open_state(tmp_path)
    await state.ensure_demo(tmp_path)
    (tmp_path / "demo.key").unlink()
    assert await state.ensure_demo(tmp_path) is None
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
