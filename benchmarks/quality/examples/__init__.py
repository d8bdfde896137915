"""Labelled states that no model was fitted on. `decisions.jsonl` has one on each line, and `load` refuses what is odd.

    {"language": "en", "preset": "sentiment-v1", "state": "...", "expected": {"sentiment": "positive", ...}}
    {"language": "de", "questions": {"thema": {...}}, "state": "...", "expected": {"thema": "Verkehr"}}

`development.jsonl` has other texts in the same form: `benchmarks/quality/similarity.py` fits a reader to them.

All were written for this project. The presets' own examples are not among them: those fit temperatures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import model_validator

from contract.body import parse
from contract.decisions.questions import Example, Preset, Question, Questions, state_text
from contract.errors import ApiError

FILE = Path(__file__).parent / "decisions.jsonl"
OWN = "own questions"
"""Stands for the preset where a line has questions of its own."""

VALUES: dict[str, type] = {"choice": str, "score": int, "binary": bool}
"""What an expected answer must be; `True` is no level and `"1"` neither."""


class ExampleError(Exception):
    """A line that cannot be used; the sentence names it."""


class Line(Example):
    language: Literal["de", "en"]
    preset: str | None = None
    questions: Questions | None = None

    @model_validator(mode="after")
    def _check(self) -> Line:
        if (self.preset is None) == (self.questions is None):
            raise ValueError("a line has either `preset` or `questions`")
        return self


@dataclass(frozen=True, slots=True)
class Case:
    """A state, its questions, and the place of each right answer among the labels of its question."""

    pack: str
    language: str
    state: str
    questions: dict[str, Question]
    expected: dict[str, int]


def load(presets: Mapping[str, Preset], file: Path = FILE) -> list[Case]:
    """Every example in the order of the file. Raises ExampleError."""
    cases = []
    for number, text in enumerate(file.read_text("utf-8").splitlines(), 1):
        try:
            cases.append(_case(parse(Line, text.encode()), presets))
        except (ApiError, ValueError) as error:
            raise ExampleError(f"{file.name}, line {number}: {error}") from None
    return cases


def _case(line: Line, presets: Mapping[str, Preset]) -> Case:
    pack = line.preset or OWN
    if line.questions is None and pack not in presets:
        raise ValueError(f"there is no preset `{pack}`")
    questions = line.questions or presets[pack].questions
    example = Example(state=line.state, expected=line.expected)
    # A preset of one example is checked as those of the server are.
    checked = Preset(id=pack, version="1", title=pack, description=pack, questions=questions, examples=[example])
    for name, value in line.expected.items():
        if type(value) is not VALUES[questions[name].type]:
            raise ValueError(f"`{value!r}` is no value for `{name}`, a question of type {questions[name].type}")
    expected = {name: checked.expected_index(name, line.expected[name]) for name in questions}
    return Case(pack, line.language, state_text(line.state), questions, expected)
