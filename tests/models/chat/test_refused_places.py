"""The search for the place of a refused keyword: cheap for any schema that a client may send."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from contract.chat import schemas
from models.llm.grammars import Grammars, Refused
from tests.models.conftest import IMPORTS

pytestmark = IMPORTS

WIDE = {f"note{number}": 1 for number in range(6000)}
MANY = {f"p{number}": {"type": "string"} for number in range(3000)}
FEW = dict([*MANY.items()][:1000])


class _Grammars:
    def __init__(self) -> None:
        self.checked: list[int] = []

    async def first_refused(self, _kind: str, specs: list[str], _owner: str) -> int | None:
        self.checked += map(len, specs)
        return 0 if '"bad"' in specs[0] else None


@pytest.mark.parametrize(
    ("reason", "schema", "place"),
    [
        ("keyword", WIDE | {"type": "number", "multipleOf": 2}, "multipleOf"),
        ("keyword", {"properties": MANY | {"n": {"type": "number", "multipleOf": 2}}}, "properties.n.multipleOf"),
        ("keyword", {"anyOf": [{"allOf": [{}, {}]}, {"type": "array", "contains": {}}]}, "anyOf[0].allOf"),
        ("invalid", WIDE | {"type": "bad"}, "type"),
        ("invalid", {"properties": MANY | {"a": {"items": {"type": "bad"}}}}, "properties.a.items.type"),
        ("invalid", {"$defs": FEW, "properties": FEW | {"a": {"type": "bad"}}}, "properties.a.type"),
        ("invalid", {"properties": {"a": 3, "b": True}, "format": "bad"}, "format"),
    ],
)
async def test_the_place_is_found_in_few_steps(
    reason: str, schema: dict[str, Any], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from models.chat import errors

    schemas.check({"response_format": schema})
    grammars, check = _Grammars(), errors.has_xgrammar_unsupported_json_features

    def counted(part: dict[str, Any]) -> bool:
        grammars.checked.append(len(part))
        return bool(check(part))

    monkeypatch.setattr(errors, "has_xgrammar_unsupported_json_features", counted)
    assert await errors.refused_place(Refused(reason), schema, "org-1", cast(Grammars, grammars)) == place
    assert len(grammars.checked) <= 40
    if reason == "invalid":
        assert sum(grammars.checked) <= 16 * len(json.dumps(schema))


async def test_the_search_ends_with_its_characters() -> None:
    from models.chat import errors

    schema = {"$defs": {"d": {"enum": ["x" * 200_000]}}, "properties": FEW | {"z": {"type": "bad"}}}
    schemas.check({"response_format": schema})
    grammars = _Grammars()
    assert await errors.refused_place(Refused("invalid"), schema, "org-1", cast(Grammars, grammars)) == ""
    assert sum(grammars.checked) <= errors.PLACE_CHARS
