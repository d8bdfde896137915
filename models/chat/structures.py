"""The form of a JSON answer as the engine compiles it: with little whitespace between its parts. Needs vLLM.

JSON allows whitespace without end between two parts. A model that samples may never come back from it: of 400 answers
of SmolLM2 to a schema of two fields, eleven were spaces and line feeds until their 200 tokens were spent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from vllm.v1.structured_output.backend_types import StructuredOutputOptions
from vllm.v1.structured_output.backend_xgrammar import has_xgrammar_unsupported_json_features

from models.llm.grammars import Refused

JSON_KINDS = (StructuredOutputOptions.JSON, StructuredOutputOptions.JSON_OBJECT, StructuredOutputOptions.STRUCTURAL_TAG)
"""Structures in which a model may write whitespace of its own."""
GAP_CHARS = 16
"""Whitespace between two parts of a JSON text. It indents four levels by four; a model that is given more room may
write nothing else until its tokens are spent."""


def with_short_gaps(kind: StructuredOutputOptions, spec: str) -> str:
    """A structural tag that allows what `spec` does, with at most `GAP_CHARS` of whitespace in one place.

    Raises Refused where xgrammar would ignore a part of a schema: it is asked about schemas, but not about tags.
    """
    if kind is StructuredOutputOptions.STRUCTURAL_TAG:
        tag = json.loads(spec)
    else:
        schema = json.loads(spec) if kind is StructuredOutputOptions.JSON else {"type": "object"}
        if has_xgrammar_unsupported_json_features(schema):
            raise Refused("keyword")
        tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema}}
    for form in _json_forms(tag):
        form["max_whitespace_cnt"] = GAP_CHARS
    return json.dumps(tag)


def _json_forms(part: Any) -> Iterator[dict[str, Any]]:
    """The forms of a structural tag that follow a schema."""
    if isinstance(part, dict) and "json_schema" in part:
        yield part
    elif isinstance(part, dict | list):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _json_forms(inner)
