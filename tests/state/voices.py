"""Voices of organisations, as a draft leaves them when it is adopted."""

from collections.abc import Iterable

from contract.speech.voices import Voice
from state.database.base import Database
from state.voices import OwnVoice, check_slug, insert_voice


async def add_voice(
    database: Database,
    org_id: int,
    voice: Voice,
    *,
    clip_blob: str,
    sample_blob: str,
    transcript: str = "x",
    taken: Iterable[str] = (),
) -> OwnVoice:
    check_slug(voice.slug, taken)
    own_voice = OwnVoice(voice, clip_blob, sample_blob, transcript, 7)
    await database.run(lambda connection: insert_voice(connection, org_id, own_voice), row=org_id)
    return own_voice
