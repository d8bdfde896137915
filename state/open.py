"""`open_state`: everything the service remembers, opened in the process that needs it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from contract.errors import without_text
from state.accounts import api_keys
from state.accounts.authentication import PEPPER, Accounts
from state.accounts.demo import create_demo
from state.billing.ledger import Ledger
from state.blobs.base import Blobs
from state.blobs.signatures import FILES_PURPOSE, Signatures
from state.blobs.store import BLOBS_VARIABLE, open_blobs
from state.database.base import Database
from state.database.connect import open_database
from state.drafts import Drafts
from state.idempotency import Idempotency
from state.keyring import SECRET_VARIABLE, Secrets, open_secrets
from state.rates import Rates
from state.tickets import Tickets
from state.voices import Voices

log = logging.getLogger(f"parlance.{__name__}")

HOME_VARIABLE = "PARLANCE_HOME"
DATABASE_VARIABLE = "PARLANCE_DATABASE_URL"

SWEEP_S = 30.0


class State:
    """What an ingress replica remembers. `close` it when the process goes.

    Attributes:
        accounts: keys and callers.
        rates: requests and streams per key.
        ledger: money.
        idempotency: answers to repeated POSTs.
        blobs: bytes by name.
        signatures: signed addresses of those bytes.
        voices: of organisations.
        tickets: for uploads.
        drafts: of voices.
        secrets: derives keys for further purposes.
        database: for queries that no repository here covers.
    """

    def __init__(self, database: Database, secrets: Secrets, rates: Rates, blobs: Blobs) -> None:
        self.database = database
        self.secrets = secrets
        self.rates = rates
        self.blobs = blobs
        self.accounts = Accounts(database, secrets.derive(PEPPER))
        self.ledger = Ledger(database)
        self.idempotency = Idempotency(database)
        self.signatures = Signatures(secrets.derive(FILES_PURPOSE))
        self.voices = Voices(database, blobs)
        self.tickets = Tickets(database, blobs)
        self.drafts = Drafts(database, blobs)
        self._sweeper = asyncio.create_task(self._sweep_forever())

    async def ensure_demo(self, home: Path) -> str | None:
        """Creates organisation `demo` and a key with every scope on the first start, in `<home>/demo.key`.

        Returns the key, or None if the organisation exists already.
        """
        return await create_demo(self.database, self.secrets.derive(PEPPER), home)

    async def close(self) -> None:
        """Finishes pending writes and closes the stores."""
        self._sweeper.cancel()
        await self.ledger.close()
        await self.rates.close()
        await self.database.close()

    async def _sweep_forever(self) -> None:
        """Renews the leases of this process and cleans up after dead ones."""
        while True:
            await asyncio.sleep(SWEEP_S)
            steps = (
                self.ledger.renew,
                self.ledger.reap,
                self.idempotency.forget_old,
                self.voices.finish_removals,
                self.tickets.sweep,
                self.drafts.expire,
                self.drafts.sweep,
                self.blobs.drop_unfinished,
            )
            for step in steps:
                try:
                    await step()
                except Exception as error:
                    # Of any kind: a sweeper that ended would let the leases of live reservations expire.
                    log.error("could not %s, next try in %d s: %s", step.__name__, SWEEP_S, without_text(error))


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
) -> State:
    """Opens secrets and stores, and migrates the schema.

    Args:
        home: folder for the secret and, by default, the database and the bytes; created if missing.
        database_url: `sqlite:///path` or `postgresql://user@host/name`.
        redis_url: `redis://host`, needed where several replicas share rate limits.
        blobs_url: `s3://bucket/prefix` or `file:///folder`, needed where several replicas share bytes.
        replicas: how many ingress replicas run.

    Raises ValueError for a configuration that cannot work, STATE_UNAVAILABLE if the database cannot be reached.
    """
    url = database_url or default_database(home)
    _refuse_split(url, redis_url, blobs_url, replicas)
    secrets, blobs = open_secrets(home), open_blobs(home, blobs_url)
    database = await open_database(url)
    try:
        _refuse_foreign_keys(await database.run(api_keys.generations), secrets)
        return State(database, secrets, Rates(redis_url, replicas), blobs)
    except BaseException:
        await database.close()
        raise


def _refuse_split(url: str, redis_url: str | None, blobs_url: str | None, replicas: int) -> None:
    """Several replicas must share counters, rows and bytes."""
    if replicas > 1 and url.startswith("sqlite"):
        raise ValueError(f"{replicas} ingress replicas cannot share SQLite; set {DATABASE_VARIABLE} to a PostgreSQL")
    if replicas > 1 and redis_url is None:
        raise ValueError(f"{replicas} ingress replicas would each count requests for themselves; give them a Redis")
    if replicas > 1 and blobs_url is None:
        raise ValueError(f"{replicas} ingress replicas would each keep files for themselves; set {BLOBS_VARIABLE}")


def _refuse_foreign_keys(generations: dict[str, int], secrets: Secrets) -> None:
    """A wrong secret makes every key invalid; better not to start than to answer 401 to every request."""
    if generations and not generations.keys() & secrets.derive(PEPPER).keys.keys():
        raise ValueError(
            f"no API key of this database was made under this server's secret; restore it or set {SECRET_VARIABLE}"
        )
