"""Schemas that are a few kilobytes long and take an engine minutes to compile."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.attacks.attack import Saw, answered, attack
from benchmarks.attacks.bystander import short_chat, standing_by
from benchmarks.attacks.target import Target


def _strings(count: int, about: int) -> dict[str, Any]:
    """Fields of text whose bounds are all different, so that no grammar is used twice."""
    fields = {f"f{index}": {"type": "string", "maxLength": about - index} for index in range(count)}
    return {"type": "object", "properties": fields, "required": list(fields)}


def _doublings(levels: int) -> dict[str, Any]:
    """Each definition names the one before it twice: 2 to the power of `levels` when it is written out."""
    twice = {
        f"d{index + 1}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{index}"}] * 2, "minItems": 2}
        for index in range(levels)
    }
    return {"$defs": {"d0": {"type": "string"}} | twice, "$ref": f"#/$defs/d{levels}"}


def _hidden(keyword: str) -> dict[str, Any]:
    """What a check passes over, because it stands under `keyword`, and a reference then uses."""
    place = [_strings(60, 9_000)] if keyword == "examples" else _strings(60, 9_000)
    to = "#/properties/a/examples/0" if keyword == "examples" else f"#/properties/a/{keyword}"
    return {"type": "object", "properties": {"a": {keyword: place}, "b": {"$ref": to}}, "required": ["b"]}


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "maxLength": 500}
    for index in range(levels):
        schema = {"type": "object", "properties": {f"n{index}": schema, "m": {"type": "number"}}}
    return schema


BOMBS: dict[str, dict[str, Any]] = {
    "100 lengths near 9,000": _strings(100, 9_000),
    "40 lengths near 4,000": _strings(40, 4_000),
    "doubled 24 times": _doublings(24),
    "hidden in default": _hidden("default"),
    "hidden in const": _hidden("const"),
    "hidden in examples": _hidden("examples"),
    "a pattern in a pattern": {"type": "string", "pattern": "^(([a-z]{1,500}){1,500}){1,500}$"},
    "20,000 values": {"enum": [f"value {index}" for index in range(20_000)]},
    "lists of lists": {
        "type": "array",
        "minItems": 1,
        "maxItems": 1_000,
        "items": {"type": "array", "maxItems": 1_000, "items": {"type": "string", "maxLength": 1_000}},
    },
    "12 objects in one another": _deep(12),
    "itself": {"$ref": "#"},
}


@attack("400 or 429 for what costs too much, 200 for what does not; JSON mode of somebody else does not wait", "chat")
async def schema_bombs(target: Target) -> Saw:
    """Schemas that cost seconds to minutes each, as `response_format` and as strict tools, all at once."""

    async def explode(name: str, turn: int) -> Any:
        # Another title each time: what was compiled once must not help.
        schema = {"title": f"{name} {turn}", **BOMBS[name]}
        if turn % 2 == 0:
            named = {"name": "bomb", "schema": schema, "strict": True}
            return await target.chat("say hi", response_format={"type": "json_schema", "json_schema": named})
        tool = {"name": "bomb", "parameters": {"type": "object", "properties": {"a": schema}}, "strict": True}
        choice = {"type": "function", "function": {"name": "bomb"}}
        return await target.chat("say hi", tools=[{"type": "function", "function": tool}], tool_choice=choice)

    probe = short_chat(target, response_format={"type": "json_object"})
    with standing_by(target, probe) as waits:
        replies = await asyncio.gather(*(explode(name, turn) for turn in range(target.size(2, 9)) for name in BOMBS))
    return answered(replies, {200, 400, 429}, waits)
