"""Voices that organisations designed. Spec 2 (Voice, scope `org`), 7 (Voice design) and 8.

add         a row for bytes that are stored already: the clip that is imitated, and a sample to listen to
remove      marks the row, deletes the bytes, deletes the row; `finish_removals` finishes after a crash

`insert_voice`, `delete_voice` and `slugs_in_use` are steps of larger transactions: a draft becomes a voice, or takes
its voice along.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, select, update

from contract.errors import NOT_FOUND, VOICE_LIMIT_REACHED, ApiError, without_text
from contract.limits import OWN_VOICES
from contract.speech.voices import SYSTEM_VOICES, Voice, check_slug_form
from state.accounts import organisations
from state.blobs.base import Blobs
from state.database.base import NOW_S, Database, insert_new
from state.database.tables import voices

log = logging.getLogger(f"parlance.{__name__}")

FINISHED_AT_ONCE = 50
ROUNDS = 20
"""Times that so many removals are finished at once; the next sweep goes on."""

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
        transcript: what is said in the clip, word for word.
        created_at: seconds since 1970.
        recipe: how the engine that runs as `runtime` speaks the voice; None where it imitates the clip.
        runtime: what designed the voice.
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


def check_slug(slug: str, taken: Iterable[str]) -> None:
    """Raises INVALID_REQUEST for a malformed slug, VOICE_LIMIT_REACHED for one of `taken`, the platform's voices.

    Case is ignored: `m1` beside `M1` would be a trap.
    """
    check_slug_form(slug)
    if slug in {name.lower() for name in (*taken, *SYSTEM_VOICES)}:
        raise slug_taken(slug)


class Voices:
    """The store of voices.

    Args:
        database: where rows live.
        blobs: where clips and samples live.
        clock: in seconds since 1970.
    """

    def __init__(self, database: Database, blobs: Blobs, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._blobs = blobs
        self._clock = clock

    async def of(self, org_id: int) -> list[OwnVoice]:
        """An organisation's voices, oldest first."""
        rows = await self._database.run(
            lambda connection: list(connection.execute(_kept(org_id).order_by(voices.c.id)))
        )
        return [_own_voice(row) for row in rows]

    async def find(self, org_id: int, slug: str) -> OwnVoice | None:
        """An organisation's voice by slug, None if there is none."""
        query = _kept(org_id).where(voices.c.slug == slug)
        row = await self._database.run(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else _own_voice(row)

    async def add(
        self, org_id: int, voice: Voice, *, clip_blob: str, sample_blob: str, transcript: str, taken: Iterable[str]
    ) -> OwnVoice:
        """Adds a voice to an organisation. It owns the bytes from now on.

        Blob names must be new for each voice: a removal that finishes late must not delete a successor's bytes.

        Args:
            org_id: the organisation.
            voice: from `own`.
            clip_blob: name of the clip's bytes, which are stored already.
            sample_blob: name of the sample's, likewise.
            transcript: of the clip.
            taken: slugs of the platform's voices.

        Raises INVALID_REQUEST for a malformed slug, VOICE_LIMIT_REACHED if the slug is taken or the organisation has
        as many voices as it may have.
        """
        check_slug(voice.slug, taken)
        made = OwnVoice(voice, clip_blob, sample_blob, transcript, int(self._clock()))
        await self._database.run(lambda connection: insert_voice(connection, org_id, made), row=org_id)
        return made

    async def remove(self, org_id: int, slug: str) -> None:
        """Deletes a voice and its bytes. Raises NOT_FOUND."""
        where = (voices.c.org_id == org_id, voices.c.slug == slug, voices.c.removed_at.is_(None))
        marked = update(voices).where(*where).values(removed_at=int(self._clock())).returning(*voices.c)
        row = await self._database.run(lambda connection: connection.execute(marked).one_or_none())
        if row is None:
            raise NOT_FOUND(f"your organisation has no voice `{slug[:100]}`")
        await self._finish(row)

    async def finish_removals(self) -> None:
        """Finishes removals that a crash or a broken store interrupted, those first that were tried longest ago."""
        for _ in range(ROUNDS):
            rows = await self._database.run(_to_finish, patient=True)
            failed = 0
            for row in rows:
                try:
                    await self._finish(row)
                except Exception as error:
                    # One voice whose bytes cannot be deleted must not keep the others.
                    log.error("could not delete a removed voice yet: %s", without_text(error))
                    await self._database.run(partial(_finish_later, voice_id=row.id))
                    failed += 1
            if failed == len(rows) or len(rows) < FINISHED_AT_ONCE:
                break

    async def _finish(self, row: Row[Any]) -> None:
        for name in (row.clip_blob, row.sample_blob):
            await self._blobs.delete(name)
        await self._database.run(lambda connection: connection.execute(delete(voices).where(voices.c.id == row.id)))


def _to_finish(connection: Connection) -> list[Row[Any]]:
    late = select(voices).where(voices.c.removed_at.is_not(None))
    return list(connection.execute(late.order_by(voices.c.removed_at, voices.c.id).limit(FINISHED_AT_ONCE)))


def _kept(org_id: int) -> Select[Any]:
    return select(voices).where(voices.c.org_id == org_id, voices.c.removed_at.is_(None))


def slugs_in_use(connection: Connection, org_id: int) -> set[str]:
    """Slugs of an organisation's voices, also of those that are being removed."""
    return set(connection.execute(select(voices.c.slug).where(voices.c.org_id == org_id)).scalars())


def insert_voice(connection: Connection, org_id: int, made: OwnVoice) -> None:
    """Adds the row. Raises VOICE_LIMIT_REACHED if the slug is taken or the organisation has all voices it may have."""
    organisations.lock(connection, org_id)
    row = {name: getattr(made.voice, name) for name in ABOUT} | {name: getattr(made, name) for name in BESIDE}
    if not connection.execute(insert_new(connection, voices).values(org_id=org_id, **row)).rowcount:
        raise slug_taken(made.voice.slug)
    count = connection.execute(select(func.count()).select_from(_kept(org_id).subquery())).scalar_one()
    if count > OWN_VOICES:
        raise VOICE_LIMIT_REACHED(f"your organisation has {OWN_VOICES} voices of its own, which is its limit")


def delete_voice(connection: Connection, org_id: int, slug: str) -> None:
    """Deletes the row of a voice whose bytes somebody else deletes."""
    connection.execute(delete(voices).where(voices.c.org_id == org_id, voices.c.slug == slug))


def _finish_later(connection: Connection, voice_id: int) -> None:
    connection.execute(update(voices).where(voices.c.id == voice_id).values(removed_at=NOW_S))


def _own_voice(row: Row[Any]) -> OwnVoice:
    about = {name: getattr(row, name) for name in ABOUT}
    return OwnVoice(own(**about), **{name: getattr(row, name) for name in BESIDE})


def slug_taken(slug: str) -> ApiError:
    """Another voice has this slug."""
    return VOICE_LIMIT_REACHED(f"the slug `{slug}` is in use; choose another one", param="slug")
