"""How a draft becomes a voice of its organisation."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from contract.speech.voices import SYSTEM_VOICES
from contract.voice_design.slugs import free_slug
from state.drafts.draft import Draft
from state.voices import OwnVoice, check_slug, own

YEARS = 5
"""Of an age group, e.g. 30-35."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """What is not in the draft itself.

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
        """The voice of a ready draft. A slug that nobody chose is made so that none of `in_use` has it.

        Raises INVALID_REQUEST for a malformed slug, VOICE_LIMIT_REACHED for one of the platform's.
        """
        made, spec = draft.made, draft.spec
        assert made is not None, "a ready draft has a clip"
        label = self.label or spec.label
        slug = self.slug or spec.slug or self._free_slug(draft, label, in_use)
        check_slug(slug, self.platform)
        about = {"slug": slug, "provider": self.provider, "label": label, "gender": spec.gender}
        about |= {"primary_language": spec.language, "description": spec.instruct}
        voice = own(**about, age_group=_age_group(spec.age_years))
        return OwnVoice(voice, made.clip_blob, made.sample_blob, made.transcript, now_s, made.recipe, made.runtime)

    def _free_slug(self, draft: Draft, label: str, in_use: Collection[str]) -> str:
        platform = {name.lower() for name in (*self.platform, *SYSTEM_VOICES)}
        return free_slug(label, f"voice-{draft.spec.gender}-{draft.spec.age_years}", {*platform, *in_use})


def _age_group(years: int) -> str:
    youngest = years - years % YEARS
    return f"{youngest}-{youngest + YEARS}"
