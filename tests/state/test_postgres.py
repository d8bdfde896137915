"""Postgres that stops, is slow or has no room, and TLS to it."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

from contract.errors import ApiError
from state.database.base import Database, connect, migrate
from state.database.postgres import SSL_MODES
from tests.state.servers import Postgres, find_binary, run_server

WAIT_S = 0.5
COUNT = text("UPDATE t SET n = n + 1 WHERE id = 1")


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.fresh()


@pytest.fixture
async def counter(url: str) -> AsyncIterator[Database]:
    database = connect(url, wait_s=WAIT_S)
    await database.run(make_counter)
    yield database
    await database.close()


def make_counter(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)"))
    connection.execute(text("INSERT INTO t VALUES (1, 0)"))


def count(connection: Connection) -> int:
    connection.execute(COUNT)
    return value(connection)


def value(connection: Connection) -> int:
    found: int = connection.execute(text("SELECT n FROM t")).scalar_one()
    return found


async def test_transactions_of_one_row_take_turns_and_all_count(counter: Database) -> None:
    results = await asyncio.gather(*(counter.run(count, durable=n % 2 == 0, row=1) for n in range(60)))
    assert sorted(results) == list(range(1, 61))


async def test_a_row_that_somebody_holds_refuses_soon_and_recovers(counter: Database, url: str) -> None:
    loop = asyncio.get_running_loop()
    other = create_async_engine(url.replace("postgresql", "postgresql+asyncpg"))
    async with other.begin() as connection:
        await connection.execute(COUNT)
        began = loop.time()
        refused = await asyncio.gather(*(counter.run(count, row=1) for _ in range(20)), return_exceptions=True)
        assert loop.time() - began < 10 * WAIT_S
        assert {error.fault.name for error in refused if isinstance(error, ApiError)} == {"STATE_UNAVAILABLE"}
        assert all(isinstance(error, ApiError) for error in refused)
    assert await counter.run(count, row=1) == 2
    await other.dispose()


async def test_after_a_restart_the_first_transaction_works(counter: Database, postgres: Postgres) -> None:
    assert await counter.run(count) == 1
    await asyncio.to_thread(postgres.stop, crash=True)
    with pytest.raises(ApiError) as caught:
        await counter.run(count)
    assert caught.value.fault.name == "STATE_UNAVAILABLE"
    await asyncio.to_thread(postgres.restart)
    assert await counter.run(count) == 2


async def test_a_server_that_was_restarted_unnoticed_is_not_noticed(counter: Database, postgres: Postgres) -> None:
    await asyncio.gather(*(counter.run(count) for _ in range(8)))
    await asyncio.to_thread(postgres.stop)
    await asyncio.to_thread(postgres.restart)
    # Every pooled connection is dead now.
    assert await asyncio.gather(*(counter.run(count, row=1) for _ in range(8))) == list(range(9, 17))


async def test_a_waiter_that_is_cancelled_does_not_stop_its_transaction(counter: Database) -> None:
    waiting = asyncio.create_task(counter.run(count))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await counter.run(count) == 2


ENCRYPTED = {"prefer", "require", "verify-ca", "verify-full"}


def self_signed() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "database")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, certificate.public_bytes(serialization.Encoding.PEM)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls") / "database.pem"


@pytest.fixture(scope="module")
def encrypted(certificate: Path) -> Iterator[Postgres]:
    key, pem = self_signed()
    certificate.write_bytes(pem)
    with run_server(Postgres) as server:
        server.encrypt(key, pem)
        yield server


def is_encrypted(connection: Connection) -> bool:
    return bool(connection.execute(text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")).scalar_one())


async def asked(url: str) -> bool:
    database = connect(url, wait_s=5)
    try:
        return await database.run(is_encrypted)
    finally:
        await database.close()


@pytest.mark.parametrize("mode", SSL_MODES)
async def test_each_mode_means_what_it_means_to_psql(encrypted: Postgres, certificate: Path, mode: str) -> None:
    url = f"{encrypted.url}?sslmode={mode}" + (f"&sslrootcert={certificate}" if mode.startswith("verify") else "")
    assert await asked(url) is (mode in ENCRYPTED)
    psql = [find_binary("psql") or "psql", url, "-tAc", "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"]
    said = await asyncio.to_thread(subprocess.run, psql, check=True, capture_output=True, text=True)
    assert said.stdout.strip() == ("t" if mode in ENCRYPTED else "f")


async def test_without_a_mode_it_is_encrypted_where_the_server_can(encrypted: Postgres) -> None:
    assert await asked(encrypted.url)


async def test_a_schema_is_made_over_an_encrypted_connection(encrypted: Postgres) -> None:
    await migrate(f"{encrypted.fresh()}?sslmode=require")


async def test_a_certificate_of_somebody_else_is_refused(encrypted: Postgres, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(self_signed()[1])
    with pytest.raises(ApiError) as caught:
        await asked(f"{encrypted.url}?sslmode=verify-full&sslrootcert={other}")
    assert caught.value.fault.name == "STATE_UNAVAILABLE"


async def test_who_requires_tls_gets_no_plain_connection(postgres: Postgres) -> None:
    assert not await asked(f"{postgres.url}?sslmode=prefer")
    with pytest.raises(ApiError) as caught:
        await asked(f"{postgres.url}?sslmode=require")
    assert caught.value.fault.name == "STATE_UNAVAILABLE"


@pytest.mark.parametrize("mode", ["on", "Require", "verify_full"])
def test_an_unknown_mode_is_named_before_anything_connects(mode: str) -> None:
    with pytest.raises(ValueError, match=f"is one of disable, allow, .*, verify-full, not `{mode}`"):
        connect(f"postgresql://db/parlance?sslmode={mode}")
