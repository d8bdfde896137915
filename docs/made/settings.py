"""docs/settings.md: every key of `args`, and every key of a stanza."""

from __future__ import annotations

from collections.abc import Container, Iterator

from pydantic import BaseModel

from autoscaling.policy.options import Scaling
from contract.catalog import CATALOG_TYPES, Model, Serving
from contract.hours import WarmHours
from deployments.ingress.deployment import IngressArgs
from deployments.ingress.wire.openapi import meanings
from docs.made.blocks import filled
from docs.made.schemas import default, words
from graph import GraphArgs


def page() -> str:
    """The whole page."""
    text = section("`args` of a config file", GraphArgs)
    text += section("`args.ingress`", IngressArgs)
    text += section("`args.scaling`", Scaling)
    text += section("`[ID.serving.PROFILE]`, how a profile runs a model", Serving)
    text += section("WarmHours", WarmHours)
    text += section("`[ID]` of every model", Model)
    for kind in CATALOG_TYPES.values():
        text += section(f"`[ID]` in `{kind.noun}.toml`", kind, {*Model.model_fields})
    return filled("settings.md", keys=text)


def section(title: str, model: type[BaseModel], without: Container[str] = ("id", "serving")) -> str:
    """A table of the fields of `model`."""
    schema = model.model_json_schema()
    required, says = set(schema.get("required", ())), dict(_meanings(model))
    lines = [f"\n## {title}\n", "| key | type | default | what it is |", "|---|---|---|---|"]
    rows: dict[str, list[str]] = {}
    for name, field in schema["properties"].items():
        if name in without:
            continue
        value = "required" if name in required else "" if "$ref" in field else default(field)
        rows.setdefault(f"{_unlinked(words(field))} | {value} | {says.get(name, '')}", []).append(f"`{name}`")
    lines += [f"| {', '.join(names)} | {row} |" for row, names in rows.items()]
    return "\n".join(lines) + "\n"


def _meanings(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """What the docstrings of a model and of those that it is made of say of its fields; its own come last."""
    for base in reversed(model.__mro__):
        if base.__doc__ and issubclass(base, BaseModel) and base is not BaseModel:
            yield from meanings(base.__doc__ or "").items()


def _unlinked(text: str) -> str:
    """Without links to types that have no table here."""
    return "table" if text.startswith("[") else text
