"""A draft as it is kept, and what a designer made of it."""

from __future__ import annotations

import base64
import math
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row

from contract.limits import DRAFT_S
from contract.speech.voices import SYSTEM_VOICES, free_slug
from contract.voice_design.draft import DraftState, VoiceSpec
from contract.voice_design.engine import DesignResult, VoiceMeasurement
from state.billing.usage import Entry
from state.voices import OwnVoice, check_slug, own

FOLDER = "drafts"
"""Folder of `State.blobs` in which clips are stored."""

ID_PATTERN = re.compile(r"vd_[a-z2-7]{26}", re.ASCII)

COLUMNS = (
    *("id", "org_id", "user_id", "key_id", "request_id", "line", "model", "state", "created_at", "work_at"),
    *("failures", "cost_micro_eur", "voice_slug", "error"),
)
"""Columns of `drafts` that are fields of a Draft as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignedVoice(VoiceMeasurement):
    """Result of a designer, once it is stored.

    Attributes:
        clip_blob, sample_blob: names in `State.blobs` of a WAV and an MP3 file.
        transcript: words that are said in both.
        recipe: settings by which the engine that runs as `runtime` speaks the voice; None where it imitates the clip.
        runtime: runtime that designed the voice.
        seconds: length of the clip.
        synthesis_ms: billed time of all attempts.
    """

    clip_blob: str
    sample_blob: str
    transcript: str
    recipe: str | None
    runtime: str
    seconds: float
    synthesis_ms: int

    @classmethod
    def of(cls, designed: DesignResult, folder: str, sentence: str, runtime: str) -> DesignedVoice:
        """Stored form of `designed`, which says `sentence`; its bytes are in `folder`."""
        measured = {field.name: getattr(designed, field.name) for field in fields(VoiceMeasurement)}
        return cls(
            **measured,
            clip_blob=f"{folder}/clip.wav",
            sample_blob=f"{folder}/sample.mp3",
            transcript=sentence,
            recipe=designed.recipe,
            runtime=runtime,
            seconds=len(designed.clip.samples) / 2 / designed.clip.sample_rate,
            synthesis_ms=max(1, math.ceil(designed.seconds * 1000)),
        )


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft.

    Attributes:
        id: `vd_` and 128 random bits; its bytes are under it, and its usage line is unique by it.
        user_id, key_id, request_id, line: entry of the bill; the work may continue in another process.
        model: id of the designer.
        created_at: seconds since 1970.
        work_at: time at which it needs attention, seconds since 1970: a pending draft once the lease of its worker has
            ended, a ready one that is to be adopted by itself. None if there is nothing to do.
        failures: of the designer, so far.
        designed: from `ready` on.
        voice_slug: while it is adopted.
        error: reason why it failed, or was not adopted by itself.
    """

    id: str
    org_id: int
    user_id: int | None
    key_id: str
    request_id: str
    line: str
    model: str
    spec: VoiceSpec
    state: DraftState
    created_at: int
    work_at: int | None = None
    failures: int = 0
    designed: DesignedVoice | None = None
    cost_micro_eur: int = 0
    voice_slug: str | None = None
    error: str | None = None

    @property
    def name(self) -> str:
        """The folder of its bytes."""
        return f"{FOLDER}/{self.id}"

    @property
    def entry(self) -> Entry:
        """Amount that is billed, once."""
        return Entry(self.id, self.org_id, self.user_id, self.key_id, self.request_id, self.line, self.model)

    @property
    def expires_at(self) -> int:
        """Time at which it has failed if it is not ready, in seconds since 1970."""
        return self.created_at + DRAFT_S


@dataclass(frozen=True, slots=True)
class DraftClaim:
    """A pending draft that this process works on. `worker` is new for each claim; None: none had it yet."""

    draft: Draft
    worker: str | None

    @property
    def folder(self) -> str:
        """For the bytes of this claim, so that a late process replaces nothing."""
        return f"{self.draft.name}/{self.worker}"


def new_id() -> str:
    """An id that cannot be guessed."""
    return f"vd_{base64.b32encode(secrets.token_bytes(16)).decode().rstrip('=').lower()}"


def columns(draft: Draft) -> dict[str, Any]:
    """The draft as columns of its row."""
    return {name: getattr(draft, name) for name in COLUMNS} | {"plan": _specs.dump_json(draft.spec).decode()}


def voice_column(voice: DesignedVoice) -> str:
    """Content of the column `made`."""
    return _voices.dump_json(voice).decode()


def draft_of(row: Row[Any]) -> Draft:
    """The draft in a row."""
    about = {name: getattr(row, name) for name in COLUMNS}
    voice = None if row.made is None else _voices.validate_json(row.made)
    return Draft(**about, spec=_specs.validate_json(row.plan), designed=voice)


_specs = TypeAdapter(VoiceSpec)
_voices = TypeAdapter(DesignedVoice)


YEARS = 5
"""Years of an age group, such as 30-35."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """Fields that are not in the draft itself.

    Attributes:
        provider: of the speech engine that speaks the voice.
        platform: slugs of the platform's voices.
        slug, label: in place of those that were ordered.
    """

    provider: str
    platform: Collection[str]
    slug: str | None = None
    label: str | None = None

    def voice(self, draft: Draft, in_use: Collection[str], now_s: int) -> OwnVoice:
        """The voice of a ready draft. A slug that was not chosen is made so that none of `in_use` has it.

        Raises INVALID_REQUEST for a malformed slug, VOICE_LIMIT_REACHED for one of the platform's.
        """
        designed, spec = draft.designed, draft.spec
        assert designed is not None, "a ready draft has a clip"
        label = self.label or spec.label
        slug = self.slug or spec.slug or self._free_slug(draft, label, in_use)
        check_slug(slug, self.platform)
        about = {"slug": slug, "provider": self.provider, "label": label, "gender": spec.gender}
        about |= {"primary_language": spec.language, "description": spec.instruct}
        youngest = spec.age_years - spec.age_years % YEARS
        voice = own(**about, age_group=f"{youngest}-{youngest + YEARS}")
        return OwnVoice(
            voice,
            designed.clip_blob,
            designed.sample_blob,
            designed.transcript,
            now_s,
            designed.recipe,
            designed.runtime,
        )

    def _free_slug(self, draft: Draft, label: str, in_use: Collection[str]) -> str:
        platform = {name.lower() for name in (*self.platform, *SYSTEM_VOICES)}
        return free_slug(label, f"voice-{draft.spec.gender}-{draft.spec.age_years}", {*platform, *in_use})
