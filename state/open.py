"""`open_state`: everything the service remembers, opened in the process that needs it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, make_url, select, update

from concurrency.background import supervised
from state.accounts import api_keys
from state.accounts.authentication import PEPPER, Accounts
from state.accounts.client_secrets import SECRETS_PURPOSE, ClientSecrets
from state.accounts.demo import create_demo
from state.billing.daily import DailyUsage
from state.billing.ledger import CLOSE_S, Ledger
from state.billing.reservation import MARK_S
from state.blobs.base import Blobs
from state.blobs.folder import free_bytes
from state.blobs.open import BLOBS_VARIABLE, open_blobs
from state.blobs.signatures import FILES_PURPOSE, Signatures
from state.database.base import Clock, Database, insert_new
from state.database.open import open_database
from state.database.tables import facts
from state.drafts import Drafts
from state.idempotency import PURPOSE as IDEMPOTENCY_PURPOSE
from state.idempotency import Idempotency
from state.keys import SECRET_VARIABLE, Secrets, open_secrets
from state.rates import Rates
from state.shared_console import SharedConsole
from state.tickets import Tickets
from state.verdicts import Verdicts
from state.voices import Voices

PURPOSE = "check"
"""Purpose of the derived secret that makes the value."""

NAME = "secret"
"""Name of the fact with the value `<generation>:<signature>`."""

_FIND = select(facts.c.value).where(facts.c.name == NAME)


def record_secret(connection: Connection, secrets: Secrets) -> None:
    """Checks the secret, and keeps the value of its newest generation from the first start or rotation on.

    Raises ValueError, which says what to do, for the secret of another database.
    """
    check_secret(connection, secrets)
    keyring = secrets.derive(PURPOSE)
    value = f"{keyring.kid}:{keyring.sign(NAME.encode()).hex()}"
    connection.execute(insert_new(connection, facts), {"name": NAME, "value": value})
    # Somebody with another secret may have been faster: two first starts at the same time.
    check_secret(connection, secrets)
    connection.execute(update(facts).where(facts.c.name == NAME).values(value=value))


def check_secret(connection: Connection, secrets: Secrets) -> None:
    """Raises ValueError unless this database was made under a generation of `secrets`, or under none yet."""
    fact = connection.execute(_FIND).scalar_one_or_none()
    if fact is None:
        _check_keys(connection, secrets)
        return
    kid, _, value = fact.partition(":")
    if not secrets.derive(PURPOSE).verify(NAME.encode(), kid, bytes.fromhex(value)):
        raise ValueError(
            "this server's secret differs from that of the servers that used this database last; set the same "
            f"{SECRET_VARIABLE} everywhere, or the previous one behind it after a comma, or restore the file `secrets`"
        )


def _check_keys(connection: Connection, secrets: Secrets) -> None:
    """For a database that has no value yet: a wrong secret makes every key invalid."""
    generations = api_keys.generations(connection)
    if generations and not generations.keys() & secrets.derive(PEPPER).keys.keys():
        raise ValueError(
            "no API key of this database was made with this server's secret; restore that secret or set "
            f"{SECRET_VARIABLE}"
        )


HOME_VARIABLE = "PARLANCE_HOME"
DATABASE_VARIABLE = "PARLANCE_DATABASE_URL"
REDIS_VARIABLE = "PARLANCE_REDIS_URL"

SWEEP_S = 30.0


class State:
    """State of an ingress replica. `close` it when the process ends.

    Attributes:
        accounts: keys and callers; client_secrets: substitutes of a key in browsers.
        rates: requests and streams per key.
        ledger: money.
        usage: billed amounts by day and model.
        idempotency: answers to repeated POSTs.
        blobs: bytes by name.
        signatures: signed addresses of those bytes.
        voices: of organisations.
        tickets: for uploads.
        drafts: of voices.
        verdicts: verdicts on speech.
        console: data of it that ingress replicas share; None where this one is alone.
        secrets: derives keys for further purposes.
        database: for queries that no repository here covers.
        clock: the database's time, by which signed addresses expire.
    """

    def __init__(self, database: Database, secrets: Secrets, rates: Rates, blobs: Blobs, clock: Clock) -> None:
        self.database = database
        self.clock = clock
        self.secrets = secrets
        self.rates = rates
        self.blobs = blobs
        self.accounts = Accounts(database, secrets.derive(PEPPER), wall=clock)
        self.client_secrets = ClientSecrets(secrets.derive(SECRETS_PURPOSE), self.accounts, clock)
        self.ledger = Ledger(database)
        self.usage = DailyUsage(database)
        self.idempotency = Idempotency(database, secrets.derive(IDEMPOTENCY_PURPOSE))
        self.signatures = Signatures(secrets.derive(FILES_PURPOSE), clock)
        self.voices = Voices(database)
        self.tickets = Tickets(database, blobs)
        self.drafts = Drafts(database, blobs, clock)
        self.drafts.to_the_limit = self.ledger.to_the_limit
        self.drafts.spawn = self.idempotency.spawn = self.ledger.spawn
        self.verdicts = Verdicts(rates.connection)
        self.console = SharedConsole(rates.connection) if rates.connection else None
        renewals = (partial(clock.adjust, database), self.ledger.renew, self.idempotency.renew, self.rates.renew)
        rows = (self.ledger.reap, self.ledger.forget_old, self.idempotency.forget_old, self.drafts.expire)
        remains = (self.tickets.sweep, self.drafts.sweep, blobs.drop_unfinished)
        self._loops = [
            # Apart: a store of bytes that is slow must hold up neither leases nor the money of processes that died.
            supervised("renew leases", *renewals, every_s=SWEEP_S),
            supervised("clean up", *rows, every_s=SWEEP_S),
            supervised("delete what is left", *remains, every_s=SWEEP_S),
            supervised("record what open requests have used", self.ledger.mark, self.ledger.tend, every_s=MARK_S),
        ]

    async def ensure_demo(self, home: Path) -> str | None:
        """Creates organisation `demo` and a key with every scope on the first start, in `<home>/demo.key`.

        Returns the key, or None if the organisation exists already.
        """
        return await create_demo(self.database, self.secrets.derive(PEPPER), home)

    async def close(self) -> None:
        """Bills what is open, finishes pending writes and closes the stores."""
        for loop in self._loops:
            loop.cancel()
        await self.ledger.close()
        await asyncio.wait(self._loops, timeout=CLOSE_S)
        await self.rates.close()
        await self.database.close()


def default_database(home: Path) -> str:
    """The database of a server that names none: SQLite in its home folder."""
    return f"sqlite:///{home / 'parlance.db'}"


async def open_state(
    home: Path,
    database_url: str | None = None,
    redis_url: str | None = None,
    blobs_url: str | None = None,
    *,
    replicas: int = 1,
    upgrade: bool | None = None,
) -> State:
    """Opens secrets and stores.

    Args:
        home: folder for the secret and, by default, the database and the bytes; created if missing.
        database_url: `sqlite:///path` or `postgresql://user@host/name`.
        redis_url: `redis://host`, needed where several replicas share rate limits.
        blobs_url: `s3://bucket/prefix` or `file:///folder`, needed where several replicas share bytes.
        replicas: number of ingress replicas.
        upgrade: whether an older schema is brought up to date, and not refused; None: where it is SQLite, which no
            other server uses.

    Raises ValueError for a configuration that cannot work, STATE_UNAVAILABLE if the database cannot be reached.
    """
    url = database_url or default_database(home)
    if sentences := splits(url, redis_url, blobs_url, replicas):
        raise ValueError("; ".join(sentences))
    secrets = open_secrets(home, is_shared=is_shared(url) or redis_url is not None or replicas > 1)
    blobs = open_blobs(home, blobs_url)
    database = await open_database(url, upgrade=not is_shared(url) if upgrade is None else upgrade)
    try:
        await database.run(partial(record_secret, secrets=secrets))
        state = State(database, secrets, Rates(redis_url, replicas), blobs, await Clock.by(database))
        if not is_shared(url):
            state.idempotency.free_bytes = partial(free_bytes, Path(make_url(url).database or home).parent)
        return state
    except BaseException:
        await database.close()
        raise


def is_shared(url: str) -> bool:
    """Says if servers on other machines can use the database."""
    return not url.startswith("sqlite")


def splits(url: str | None, redis_url: str | None, blobs_url: str | None, replicas: int) -> list[str]:
    """Returns the reasons for which several replicas would not share rows, counters and bytes. No `url` is SQLite."""
    if replicas == 1:
        return []
    sentences = []
    if not (url and is_shared(url)):
        sentences.append(f"cannot share SQLite; set {DATABASE_VARIABLE} to a PostgreSQL database")
    if redis_url is None:
        sentences.append(f"would each count requests separately; set {REDIS_VARIABLE} to a Redis server")
    if blobs_url is None:
        sentences.append(f"would each store files separately; set {BLOBS_VARIABLE} to a common store")
    return [f"{replicas} ingress replicas {sentence}" for sentence in sentences]
