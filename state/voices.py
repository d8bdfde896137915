"""Voices that organisations designed.

Functions of a connection are steps of larger transactions: a draft becomes a voice, and takes its voice along when it
is discarded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select

from contract.errors import VOICE_LIMIT_REACHED, ApiError
from contract.limits import OWN_VOICES
from contract.speech.voices import SLUG_CHARS, SLUG_PATTERN, SYSTEM_VOICES, Voice, checked_slug
from state.database.base import Database, insert_new
from state.database.tables import voices

ABOUT = ("slug", "provider", "label", "gender", "age_group", "primary_language", "description")
"""Fields of a Voice that are columns of `voices`."""

BESIDE = ("clip_blob", "sample_blob", "transcript", "created_at", "recipe", "runtime")
"""Fields of an OwnVoice that are columns too."""


@dataclass(frozen=True, slots=True)
class OwnVoice:
    """A voice and what it is cloned from.

    Attributes:
        voice: of scope `org`.
        clip_blob, sample_blob: names in `State.blobs`.
        transcript: words that are said in the clip.
        created_at: seconds since 1970.
        recipe: settings by which the engine that runs as `runtime` speaks the voice; None where it imitates the clip.
        runtime: runtime that designed the voice.
    """

    voice: Voice
    clip_blob: str
    sample_blob: str
    transcript: str
    created_at: int
    recipe: str | None = None
    runtime: str | None = None


def own(**about: Any) -> Voice:
    """A Voice with the fields that all voices of organisations share."""
    return Voice(**about, origin="designed", scope="org", from_plan=True)


def check_slug(slug: str, in_use: Iterable[str]) -> None:
    """Raises INVALID_REQUEST for a malformed slug, VOICE_LIMIT_REACHED for one of `taken`, the platform's voices.

    Case is ignored: `m1` beside `M1` would be a trap.
    """
    checked_slug(slug)
    if slug in {name.lower() for name in (*in_use, *SYSTEM_VOICES)}:
        raise slug_taken(slug)


class Voices:
    """The store of voices. `database` is where their rows live; `drafts` adds and deletes them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, org_id: int) -> list[OwnVoice]:
        """An organisation's voices, oldest first."""
        query = select(voices).where(voices.c.org_id == org_id).order_by(voices.c.id)
        return [_own_voice(row) for row in await self._database.run(lambda c: list(c.execute(query)))]

    async def find(self, org_id: int, slug: str) -> OwnVoice | None:
        """An organisation's voice by slug, None if there is none."""
        if len(slug) > SLUG_CHARS[1] or not SLUG_PATTERN.fullmatch(slug):  # PostgreSQL takes no NUL
            return None
        return await self._database.run(lambda connection: find_voice(connection, org_id, slug))


def find_voice(connection: Connection, org_id: int, slug: str) -> OwnVoice | None:
    """The voice with that slug, None if there is none."""
    query = select(voices).where(voices.c.org_id == org_id, voices.c.slug == slug)
    row = connection.execute(query).one_or_none()
    return None if row is None else _own_voice(row)


def slugs_in_use(connection: Connection, org_id: int) -> set[str]:
    """Slugs of an organisation's voices."""
    return set(connection.execute(select(voices.c.slug).where(voices.c.org_id == org_id)).scalars())


def insert_voice(connection: Connection, org_id: int, own_voice: OwnVoice) -> None:
    """Adds the row, under a lock of the organisation.

    Raises VOICE_LIMIT_REACHED if the slug is taken or the organisation has all voices it may have.
    """
    row = {name: getattr(own_voice.voice, name) for name in ABOUT} | {name: getattr(own_voice, name) for name in BESIDE}
    if not connection.execute(insert_new(connection, voices).values(org_id=org_id, **row)).rowcount:
        raise slug_taken(own_voice.voice.slug)
    count = connection.execute(select(func.count()).select_from(voices).where(voices.c.org_id == org_id)).scalar_one()
    if count > OWN_VOICES:
        raise VOICE_LIMIT_REACHED(f"your organisation has {OWN_VOICES} voices of its own, which is its limit")


def delete_voice(connection: Connection, org_id: int, slug: str) -> None:
    """Deletes the row of a voice; its bytes are deleted elsewhere."""
    connection.execute(delete(voices).where(voices.c.org_id == org_id, voices.c.slug == slug))


def _own_voice(row: Row[Any]) -> OwnVoice:
    about = {name: getattr(row, name) for name in ABOUT}
    return OwnVoice(own(**about), **{name: getattr(row, name) for name in BESIDE})


def slug_taken(slug: str) -> ApiError:
    """Another voice has this slug."""
    return VOICE_LIMIT_REACHED(f"the slug `{slug}` is in use; choose another one", param="slug")
