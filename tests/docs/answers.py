"""Whether a command answered what its page shows.

Answers are compared loosely. JSON must have the same members and types; text must be the same but for numbers, dates
and ids; where the page says "Paris", so must the answer.
"""

import json
import re
from typing import Any

MASKS = (
    (r"\breq_[0-9a-f]{32}", "REQUEST"),
    (r"\bprl_\w+", "KEY"),
    (r"\b(?=[0-9A-Za-z]*[0-9A-Z])[0-9A-Za-z]{8}\b", "ID"),
    (r"\d{4}-\d\d-\d\d(T[\d:.]+Z)?", "DATE"),
    (r"\b\w{4} +DATE", "HINT DATE"),
    (r"-?\d[\d,.]*", "N"),
    (r"[ \t]+", " "),
)


def check_answer(output: str, shown: str) -> None:
    """Fails if `output` is not of the kind that the page shows."""
    assert ("Paris" in output) == ("Paris" in shown), output
    try:
        value = json.loads(shown)
    except ValueError:
        assert _masked(output) == _masked(shown)
    else:
        assert _shape(json.loads(output)) == _shape(value)


def _masked(text: str) -> list[str]:
    for pattern, name in MASKS:
        text = re.sub(pattern, name, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def _shape(value: Any) -> Any:
    """Members and types of a JSON value; of a list those of its first item."""
    if isinstance(value, dict):
        return {key: _shape(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_shape(item) for item in value[:1]]
    return type(value).__name__
