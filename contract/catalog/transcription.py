"""Stanza of a speech-to-text model."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pydantic import PositiveFloat

from contract.catalog.base import Model, ModelId
from contract.transcription.engine import LANGUAGES


class TranscriptionModel(Model):
    """A speech-to-text model with its capabilities, so that no rule depends on its name.

    Attributes:
        is_default: whether the model serves requests that name no model, or an unknown one.
        formats: values of `response_format`.
        reports_language: whether the model detects and returns the language if none is named.
        is_detailed: whether segments are always returned, with Whisper's figures; then both granularities are possible,
            and `duration` ends with the last segment.
        takes_prompt: whether the model reads `prompt`.
        selects_language: whether the model refuses unknown languages; others accept any code, and return it as sent.
        formats_text: whether `format_text` is possible.
        formatter: chat model of the structuring pass; fixed rules replace it if it is not deployed.
        answer_s: seconds from the request to the answer; the reply is 504 after that.
        computed_s: seconds of work on the recording itself below which a late reply is 503 instead.
    """

    kind = "stt"
    noun = "transcription"

    is_default: bool = False
    formats: tuple[str, ...] = ("json", "text", "verbose_json")
    reports_language: bool = False
    is_detailed: bool = False
    takes_prompt: bool = False
    selects_language: bool = False
    formats_text: bool = False
    formatter: ModelId | None = None
    answer_s: PositiveFloat = 270
    computed_s: float = 0

    @cached_property
    def languages(self) -> frozenset[str]:
        """Codes of languages that the runtime here accepts."""
        return frozenset(LANGUAGES) - frozenset(self._option("lacks_languages", ()))

    @property
    def times_words(self) -> bool:
        return "word" in self._option("times", ("segment", "word"))

    @property
    def takes_terms(self) -> bool:
        return bool(self._option("takes_terms", True))

    def _option(self, name: str, default: Any) -> Any:
        return self.serving.options.get(name, default) if self.serving else default
