"""Connections to PostgreSQL over TLS, in each mode of psql."""

import asyncio
import datetime
import ipaddress
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import Connection, text

from state.database.open import connect, migrate
from state.database.postgres import SSL_MODES
from tests.state.books import fault_of
from tests.state.servers import Postgres, find_binary, run_server

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


async def test_without_a_mode_it_is_encrypted_where_the_server_can_and_a_schema_is_made_so(encrypted: Postgres) -> None:
    assert await asked(encrypted.url)
    await migrate(f"{encrypted.fresh()}?sslmode=require")


async def test_a_certificate_of_another_server_is_refused(encrypted: Postgres, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(self_signed()[1])
    assert await fault_of(asked(f"{encrypted.url}?sslmode=verify-full&sslrootcert={other}")) == "STATE_UNAVAILABLE"


async def test_a_client_that_requires_tls_gets_no_plain_connection(postgres: Postgres) -> None:
    assert not await asked(f"{postgres.url}?sslmode=prefer")
    assert await fault_of(asked(f"{postgres.url}?sslmode=require")) == "STATE_UNAVAILABLE"


def test_an_unknown_mode_is_named_before_anything_connects() -> None:
    for mode in ("on", "Require", "verify_full"):
        with pytest.raises(ValueError, match=f"is one of disable, allow, .*, verify-full, not `{mode}`"):
            connect(f"postgresql://db/parlance?sslmode={mode}")
