"""Packs of questions that the server keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import TypedDict

from contract.base import Strict
from contract.decisions.questions import Question, Questions, State
from contract.errors import UNKNOWN_PRESET


class Example(Strict):
    """A state with the answers that a person gave: option ids, level indices, booleans."""

    state: State
    expected: dict[str, bool | int | str]


class Preset(Strict):
    """A pack of questions that the server keeps. A change of wording is a new version.

    Attributes:
        examples: shown to clients, and what every runtime is measured with before it answers.
    """

    id: str
    version: str
    title: str
    description: str
    questions: Questions
    examples: Annotated[list[Example], Field(min_length=1)]

    @model_validator(mode="after")
    def _check(self) -> Preset:
        for example in self.examples:
            if set(example.expected) != set(self.questions):
                raise ValueError(f"an example of `{self.id}` must expect an answer to each question, and no other")
            for name, value in example.expected.items():
                self.expected_index(name, value)
        return self

    def expected_index(self, name: str, value: bool | int | str) -> int:
        """The place of an expected value among the labels of question `name`. Raises ValueError."""
        label = str(value).lower() if isinstance(value, bool) else str(value)
        labels = self.questions[name].labels
        if label not in labels:
            raise ValueError(f"`{value}` is no answer to `{name}` of `{self.id}`")
        return labels.index(label)


class PresetObject(TypedDict):
    """A pack of questions with example states and the answers that are expected for them."""

    object: Literal["decision_preset"]
    id: str
    version: str
    title: str
    description: str
    questions: dict[str, Question]
    examples: list[Example]


class PresetList(TypedDict):
    """The packs of questions."""

    object: Literal["list"]
    data: list[PresetObject]


def named(presets: Mapping[str, Preset], id: str) -> Preset:
    """The pack `id`. Raises UNKNOWN_PRESET."""
    if id not in presets:
        names = ", ".join(f"`{name}`" for name in presets)
        raise UNKNOWN_PRESET(f"there is no preset `{id[:100]}`; there are: {names}", param="preset")
    return presets[id]


def listed_presets(presets: Iterable[Preset]) -> dict[str, Any]:
    """A `PresetList` as JSON values."""
    data = [{"object": "decision_preset", **preset.model_dump(exclude_none=True)} for preset in presets]
    return {"object": "list", "data": data}
