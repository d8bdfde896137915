"""`open_state`: everything the service remembers, opened in the process that needs it."""

from __future__ import annotations

from pathlib import Path

from state.accounts import PEPPER, Accounts
from state.database import Database, open_database
from state.secrets import Secrets, open_secrets

HOME_VARIABLE = "PARLANCE_HOME"
DATABASE_VARIABLE = "PARLANCE_DATABASE_URL"


class State:
    """What an ingress replica remembers. `close` it when the process goes.

    Attributes:
        accounts: keys and callers.
        secrets: derives keys for other purposes, e.g. signed addresses.
        database: for repositories of other kinds.
    """

    def __init__(self, database: Database, secrets: Secrets) -> None:
        self.database = database
        self.secrets = secrets
        self.accounts = Accounts(database, secrets.derive(PEPPER))

    async def close(self) -> None:
        """Finishes what was begun and lets go of the database."""
        await self.database.close()


def default_database(home: Path) -> str:
    """The address of the database of a server that was given none."""
    return f"sqlite:///{home / 'parlance.db'}"


async def open_state(
    home: Path, database_url: str | None = None, redis_url: str | None = None, *, replicas: int = 1
) -> State:
    """Opens secrets and database and steps the schema forwards.

    Args:
        home: folder for the secret and, by default, the database; made if missing.
        database_url: `sqlite:///path` or `postgresql://user@host/name`.
        redis_url: `redis://host`, needed where several replicas share rate limits.
        replicas: ingress replicas that will run.

    Raises ValueError for a configuration that cannot work, STATE_UNAVAILABLE if a store cannot be reached.
    """
    secrets = open_secrets(home)
    database = await open_database(database_url or default_database(home))
    return State(database, secrets)
