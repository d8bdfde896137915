"""What a stanza of a speech-to-text model may say."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pydantic import PositiveFloat

from contract.catalog.base import Model, ModelId
from contract.transcription.engine import LANGUAGES


class TranscriptionModel(Model):
    """A speech-to-text model: what it can do, so that no rule asks for its name.

    Attributes:
        is_default: whether it serves requests that name no model, or an unknown one.
        formats: what `response_format` may be.
        reports_language: detects the language where none is named, and says which.
        is_detailed: its segments carry Whisper's figures and are always there, both granularities are possible, and
            `duration` ends with the last segment.
        takes_prompt: reads `prompt`.
        selects_language: refuses a language that it does not know; others take any code, and return it as it was sent.
        formats_text: whether `format_text` is possible.
        formatter: chat model of the structuring pass, where it is deployed; rules do it otherwise.
        answer_s: seconds from the request to the answer; the reply is 504 after that.
        computed_s: the reply is 503 instead if less than these seconds were spent on the recording itself.
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
        """Codes that the runtime here accepts."""
        return frozenset(LANGUAGES) - frozenset(self._option("lacks_languages", ()))

    @property
    def times_words(self) -> bool:
        return "word" in self._option("times", ("segment", "word"))

    @property
    def takes_terms(self) -> bool:
        return bool(self._option("takes_terms", True))

    def _option(self, name: str, default: Any) -> Any:
        return self.serving.options.get(name, default) if self.serving else default
