"""Typed options: every adapter declares what `serving.options` of its stanza may say, and reads nothing else.

    class Fast:                         an adapter that takes options
        options_type = FastOptions      a `Frozen` of pydantic; an adapter without one takes no options

`check` says before anything is loaded what `read` would say in the replica.
"""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

from pydantic import ValidationError

from contract.base import Frozen, ProfileError
from contract.catalog import Model

T = TypeVar("T", bound=Frozen)


class OptionsError(ProfileError, ValueError):
    """A stanza with an adapter or options that cannot be used; the sentence names file, stanza and key."""


class NoOptions(Frozen):
    """Options of an adapter that declares none."""


def adapter_of(model: Model) -> Any:
    """The class that the stanza of `model` names, from the one import by a name from data. Nothing is loaded.

    Raises ValueError for a model that is not set up, OptionsError for an adapter that does not exist.
    """
    if model.serving is None:
        raise ValueError(f"model `{model.id}` is not set up in this profile")
    name, _, class_name = model.serving.adapter.partition(":")
    try:
        adapter = getattr(importlib.import_module(name), class_name, None)
    except ModuleNotFoundError as error:
        if not error.name or not f"{name}.".startswith(f"{error.name}."):
            raise  # the adapter exists; a library that it imports does not
        adapter = None
    if adapter is None:
        raise OptionsError(f"{_place(model, 'adapter')}: there is no adapter `{model.serving.adapter}`")
    return adapter


def check(model: Model) -> Frozen:
    """The options of `model` as its adapter will read them. Imports the adapter; raises OptionsError."""
    options_type: type[Frozen] = getattr(adapter_of(model), "options_type", NoOptions)
    return read(model, options_type)


def read(model: Model, options_type: type[T]) -> T:
    """`serving.options` of `model`, validated; the defaults where it has no serving table. Raises OptionsError."""
    try:
        return options_type.model_validate(model.serving.options if model.serving else {})
    except ValidationError as error:
        raise OptionsError(_sentence(model, options_type, error)) from None


def _sentence(model: Model, options_type: type[Frozen], error: ValidationError) -> str:
    """The first finding of pydantic, without the value: it may be a secret."""
    finding = error.errors(include_url=False, include_input=False)[0]
    path = finding["loc"]
    place = _place(model, ".".join(map(str, ("options", *path))))
    if finding["type"] == "extra_forbidden":
        options = ", ".join(f"`{name}`" for name in options_type.model_fields) if len(path) == 1 else ""
        return f"{place}: there is no such option" + (f"; there are {options}" if options else "")
    cause = finding.get("ctx", {}).get("error")
    return f"{place}: {cause or finding['msg'][:1].lower() + finding['msg'][1:]}"


def _place(model: Model, key: str) -> str:
    return f"{model.noun}.toml [{model.id}.serving] `{key}`"
