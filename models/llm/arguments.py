"""vLLM's engine arguments: `options.engine` of a stanza, checked without importing vLLM.

The import takes ten seconds, and a head node may have no vLLM. So names and types are read from the source of the
installed `EngineArgs`; where vLLM is not installed, nothing is checked.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from contract.base import Frozen

CLASSES = ("EngineArgs", "AsyncEngineArgs")

PLAIN = {"int": int, "float": float, "bool": bool, "str": str, "None": type(None)}
"""Annotations with values that can be checked; all others are vLLM's own types."""


def check(arguments: dict[str, Any]) -> dict[str, Any]:
    """`arguments` themselves. Raises ValueError for an unknown name, and for a value of another plain type."""
    annotations = installed()
    for name, value in arguments.items():
        if name == "model":
            raise ValueError("`model` cannot be set here; `weights` of the stanza sets it")
        if not annotations:
            continue
        if name not in annotations:
            near = get_close_matches(name, annotations, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise ValueError(f"vLLM has no engine argument `{name}`{hint}")
        if not _fits(value, annotations[name]):
            raise ValueError(f"engine argument `{name}` must be `{annotations[name]}`, not {type(value).__name__}")
    return arguments


EngineArguments = Annotated[dict[str, Any], AfterValidator(check)]


class EngineOptions(Frozen):
    """Options of every adapter that runs vLLM.

    Attributes:
        engine: engine arguments of vLLM; they go before our defaults.
        engine_process: puts the engine core into processes of its own, which GPUs need.
        quick_steps: on a CPU, steps take quicker kernels and a shorter forward than vLLM's, where they fit.
        int8: weights in 8 bits, where their folder has them and the processor has instructions for them.
    """

    engine: EngineArguments = {}
    engine_process: bool = False
    quick_steps: bool = True
    int8: bool = False


@cache
def installed() -> Mapping[str, str]:
    """Annotation of each engine argument of the installed vLLM; empty where there is none."""
    spec = importlib.util.find_spec("vllm")  # finds the package and does not import it
    if spec is None or not spec.submodule_search_locations:
        return {}
    source = Path(spec.submodule_search_locations[0]) / "engine" / "arg_utils.py"
    return dict(_annotations(ast.parse(source.read_text("utf-8"))))


def _annotations(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for part in tree.body:
        if isinstance(part, ast.ClassDef) and part.name in CLASSES:
            for line in part.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield line.target.id, ast.unparse(line.annotation)


def _fits(value: Any, annotation: str) -> bool:
    """Says if `value` is of one of the types in `annotation`; True if one of them is not plain."""
    names = [name.strip() for name in annotation.split("|")]
    if not all(name in PLAIN for name in names):
        return True
    if isinstance(value, bool):
        return "bool" in names
    kinds = tuple(PLAIN[name] for name in names)
    return isinstance(value, kinds) or ("float" in names and isinstance(value, int))
