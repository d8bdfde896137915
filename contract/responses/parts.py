"""Pieces of a message or of a tool's output: text and images."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, field_validator, model_validator

from contract.base import Items, Lenient
from contract.chat.request import MAX_PARTS, ImageUrl, Part
from contract.images import decoded_bytes


class ContentPart(Lenient):
    """A piece of a message or of a tool's output: text, or an image in the body itself."""

    type: Literal["input_text", "output_text", "refusal", "input_image"]
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None

    @field_validator("image_url")
    @classmethod
    def _is_data(cls, url: str | None) -> str | None:
        if url is not None:
            decoded_bytes(url)
        return url

    @model_validator(mode="after")
    def _is_filled(self) -> ContentPart:
        if self.type == "input_image" and self.image_url is None:
            raise ValueError("an image must be sent in `image_url` as a `data:` address; this server stores no files")
        if self.type != "input_image" and self._words is None:
            field = "refusal" if self.type == "refusal" else "text"
            raise ValueError(f"a part of type `{self.type}` needs the field `{field}`")
        return self

    @property
    def _words(self) -> str | None:
        return self.refusal if self.type == "refusal" else self.text

    def part(self) -> Part:
        """As a part of a message."""
        if self.image_url is None or self.type != "input_image":
            return Part(type="text", text=self._words)
        # The address was looked at above, and reading megabytes twice is dear.
        image = ImageUrl.model_construct(
            url=self.image_url, detail="high" if self.detail == "original" else self.detail
        )
        return Part(type="image_url", image_url=image)


Parts = Annotated[
    Annotated[list[ContentPart], Items(MAX_PARTS)],
    BeforeValidator(
        lambda v: [{"type": "input_text", "text": v}] if isinstance(v, str) else v,
        json_schema_input_type=str | list[ContentPart],
    ),
]
