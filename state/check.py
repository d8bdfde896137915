"""Whose database this is: a value that only its own secret can make, kept in the database.

Servers that share a database must share the secret. One with another would refuse every key that the others make, so it
does not start.
"""

from __future__ import annotations

from sqlalchemy import Connection, select, update

from state.accounts import api_keys
from state.accounts.authentication import PEPPER
from state.database.base import insert_new
from state.database.tables import facts
from state.keyring import SECRET_VARIABLE, Secrets

PURPOSE = "check"
"""Of the derived secret that makes the value."""

NAME = "secret"
"""Of the fact: `<generation>:<value>`."""

_FIND = select(facts.c.value).where(facts.c.name == NAME)


def record_secret(connection: Connection, secrets: Secrets) -> None:
    """Checks the secret, and keeps the value of its newest generation from the first start or rotation on.

    Raises ValueError, which says what to do, for the secret of another database.
    """
    check_secret(connection, secrets)
    value = _value(secrets)
    connection.execute(insert_new(connection, facts), {"name": NAME, "value": value})
    # Somebody with another secret may have been faster: two first starts at the same time.
    check_secret(connection, secrets)
    connection.execute(update(facts).where(facts.c.name == NAME).values(value=value))


def check_secret(connection: Connection, secrets: Secrets) -> None:
    """Raises ValueError unless this database was made under a generation of `secrets`, or under none yet."""
    found = connection.execute(_FIND).scalar_one_or_none()
    if found is None:
        _check_keys(connection, secrets)
        return
    kid, _, value = found.partition(":")
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


def _value(secrets: Secrets) -> str:
    keyring = secrets.derive(PURPOSE)
    return f"{keyring.kid}:{keyring.sign(NAME.encode()).hex()}"
