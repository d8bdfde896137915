"""Tables of docs/api.md against `contract/`, in both directions: nothing is missing, nothing is invented."""

from __future__ import annotations

import ast
import inspect
import re
from types import ModuleType
from typing import TypeGuard

import configs
from contract import completions, embeddings, limits, rerank
from contract.access import TARIFFS, Scope
from contract.chat import request as chat
from contract.chat import schemas, thinking
from contract.chat import tools as chat_tools
from contract.messages import request as messages
from contract.responses import request as responses
from contract.speech import voices
from contract.transcription.uploads import RECORDING_TYPES
from tests.docs.pages import API, rows

Value = float | tuple[float, ...]
"""A limit, or its two bounds."""

UNITS = {"KiB": 1024, "MiB": 1024 * 1024}
MODULES = (
    limits,
    chat,
    chat_tools,
    schemas,
    thinking,
    responses,
    messages,
    completions,
    embeddings,
    rerank,
    voices,
)
NOT_LIMITS = {"contract.limits.MIB", "contract.embeddings.FLOAT_BYTES", "contract.embeddings.VECTOR_BYTES"}


def test_plans() -> None:
    told = {name: (_number(rate), _number(streams), voices) for name, rate, streams, voices in rows(API, "plan")}
    assert told == {
        plan.name: (plan.requests_per_minute, plan.concurrent_streams, "yes" if plan.voices else "no")
        for plan in TARIFFS.values()
    }


def test_scopes() -> None:
    assert [row[0] for row in rows(API, "scope")] == [scope.value for scope in Scope]


def test_limits() -> None:
    told = {name: _number(value) for _, value, name in rows(API, "limit", "value")}
    written: dict[str, Value] = {}
    for module in MODULES:
        written |= _constants(module)
    assert told == written


def test_speech_engines() -> None:
    told = {row[0]: row[1:] for row in rows(API, "engine", "model", "languages")}
    assert told == {
        model.provider: [
            id,
            " ".join(model.languages),
            " ".join(model.formats),
            f"{model.max_input_chars:,}",
            " ".join([*model.tags, *(f"<{span}>" for span in model.spans)]),
        ]
        for id, model in configs.load("embedded").speech.items()
    }


def test_recording_types() -> None:
    (told,) = re.findall(r"^\| `mime` \|(.*)\|$", API.read_text("utf-8"), re.MULTILINE)
    assert re.findall(r"audio/[\w-]+", told) == list(RECORDING_TYPES)


def _constants(module: ModuleType) -> dict[str, Value]:
    """Numbers and pairs of them, in capitals, that the module itself defines and does not import from a neighbour."""
    lines = ast.parse(inspect.getsource(module)).body
    own = {target.id for line in lines if isinstance(line, ast.Assign) for target in line.targets if _is_name(target)}
    return {
        f"{module.__name__}.{name}": value
        for name, value in vars(module).items()
        if name in own
        and name.isupper()
        and all(type(number) in (int, float) for number in (value if type(value) is tuple else (value,)))
        and f"{module.__name__}.{name}" not in NOT_LIMITS
    }


def _is_name(target: ast.expr) -> TypeGuard[ast.Name]:
    return isinstance(target, ast.Name)


def _number(text: str) -> Value:
    """`1,024`, `0.5`, `8 MiB` or `60 s` as a number in the unit of the constant, `2 to 26` as a pair."""
    if pair := re.fullmatch(r"([\d,.]+) to ([\d,.]+)", text):
        return tuple(_number(bound) for bound in pair.groups())
    value, _, unit = text.partition(" ")
    return ast.literal_eval(value.replace(",", "")) * UNITS.get(unit, 1)
