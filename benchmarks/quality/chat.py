"""What a chat model's number format takes from it, and how far its answers can be believed.

    python -m benchmarks.quality chat
    python -m benchmarks.quality chat --model smollm2-135m-instruct --formats int8

Each format is a process of its own, and its engine runs as a replica's does. Texts that are not ours are read: the
manual that Python carries, and what installed packages say of themselves. Perplexity stands beside that of bfloat16,
token by token, with the standard error of the difference. `benchmarks/quality/examples/chat.toml` has questions,
sentences to put into JSON by a schema, and sentences that call a tool, which has to be chosen among five.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import configs
import models
from benchmarks import tables
from benchmarks.servers import printed_by
from contract.body import parse
from contract.catalog import ChatModel
from contract.chat.engine import ChatJob
from contract.chat.request import ChatRequest
from contract.errors import ApiError

FILE = Path(__file__).parent / "examples/chat.toml"
FORMATS: dict[str, dict[str, Any]] = {"bfloat16": {"int8": False}, "int8": {"int8": True}}
"""Options of the stanza by the name of a format; the others are held beside the first."""
TEXTS, SHORTEST, LONGEST = 160, 300, 900
"""So many paragraphs are read, of so many characters."""
ANSWER_TOKENS = 160
AT_ONCE = 8

Scores = dict[str, list[Any]]
"""`read` has the log-probability of each token, the others whether each answer was right."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", default="embedded", choices=configs.PROFILES, help="whose model (embedded)")
    parser.add_argument("--model", default="smollm2-135m-instruct", metavar="ID")
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=FORMATS)
    parser.add_argument("--here", action="store_true", help="one format, in this process; prints JSON")


def run(options: argparse.Namespace) -> None:
    model = configs.load(options.profile).chat[options.model]
    if options.here:
        print(json.dumps(asyncio.run(scores(in_format(model, options.formats[0])))), flush=True)
        os._exit(0)  # taking the engine apart takes seconds
    print(table({name: _child(options, name) for name in options.formats}))


def _child(options: argparse.Namespace, name: str) -> Scores:
    arguments = ("chat", "--here", "--formats", name, "--profile", options.profile, "--model", options.model)
    return printed_by("benchmarks.quality", *arguments)  # type: ignore[no-any-return]


def in_format(model: ChatModel, name: str) -> ChatModel:
    serving = model.setup.model_copy(update={"options": model.setup.options | FORMATS[name]})
    return model.model_copy(update={"serving": serving})


async def scores(model: ChatModel) -> Scores:
    engine, examples = models.load(model), tomllib.loads(FILE.read_text("utf-8"))
    turns = asyncio.Semaphore(AT_ONCE)

    async def message(ask: str, **fields: Any) -> dict[str, Any]:
        body = {"model": model.id, "messages": [{"role": "user", "content": ask}], "temperature": 0} | fields
        async with turns:
            request = parse(ChatRequest, json.dumps({"max_tokens": ANSWER_TOKENS} | body).encode())
            reply = await engine.complete(ChatJob(request))
        return dict(reply.body["choices"][0]["message"])

    async def answers(row: Mapping[str, Any]) -> bool:
        text = (await message(row["ask"]))["content"] or ""
        return any(wanted.lower() in text.lower() for wanted in row["accept"])

    async def fills(row: Mapping[str, Any]) -> bool:
        form = {
            "type": "json_schema",
            "json_schema": {"name": "facts", "schema": schema(row["schema"]), "strict": True},
        }
        text = (await message(f"Put this into JSON: {row['ask']}", response_format=form))["content"]
        try:
            return set(json.loads(text)) == set(row["schema"])
        except ValueError:  # cut
            return False

    async def calls(row: Mapping[str, Any]) -> bool:
        tools = [
            {"type": "function", "function": {"name": name, **tool, "parameters": schema(tool["parameters"])}}
            for name, tool in examples["tools"].items()
        ]
        try:
            called = (await message(row["ask"], tools=tools, tool_choice="required")).get("tool_calls") or []
        except ApiError:
            return False
        return bool(called) and is_call(called[0]["function"], row)

    return {
        "read": await likelihoods(engine),
        "questions": list(await asyncio.gather(*map(answers, examples["questions"]))),
        "objects": list(await asyncio.gather(*map(fills, examples["objects"]))),
        "calls": list(await asyncio.gather(*map(calls, examples["calls"]["of"]))),
    }


def schema(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object with these fields, all of them required."""
    return {
        "type": "object",
        "properties": {name: _kind(kind) for name, kind in fields.items()},
        "required": list(fields),
        "additionalProperties": False,
    }


def _kind(kind: str | list[str]) -> dict[str, Any]:
    if isinstance(kind, str):
        return {"type": kind} | ({"maxLength": 60} if kind == "string" else {})
    if len(kind) == 1:
        return {"type": "array", "items": _kind(kind[0]), "minItems": 1, "maxItems": 5}
    return {"enum": kind}


def is_call(called: Mapping[str, str], row: Mapping[str, Any]) -> bool:
    """Whether the tool is the right one, and its arguments hold what was expected."""
    arguments = json.loads(called["arguments"])
    return called["name"] == row["tool"] and all(
        wanted.lower() in str(arguments.get(name, "")).lower()
        if isinstance(wanted, str)
        else arguments.get(name) == wanted
        for name, wanted in row["arguments"].items()
    )


async def likelihoods(engine: Any) -> list[float]:
    """The log-probability of each token of the texts, by the engine behind an adapter."""
    from vllm.sampling_params import SamplingParams

    params, figures = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0), []
    for number, text in enumerate(texts()):
        async for output in engine.engine.generate(text, params, f"text {number}"):
            last = output
        steps = zip(last.prompt_token_ids[1:], last.prompt_logprobs[1:], strict=True)
        figures += [step[token].logprob for token, step in steps]
    return figures


def texts() -> list[str]:
    """Paragraphs of prose, evenly taken from all that were found."""
    from pydoc_data.topics import topics

    descriptions = (package.read_text("METADATA") or "" for package in sorted(distributions(), key=lambda it: it.name))
    found = [paragraph for text in (*topics.values(), *descriptions) for paragraph in _prose(text)]
    return found[:: max(1, len(found) // TEXTS)][:TEXTS]


def _prose(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        line = " ".join(paragraph.split())
        if SHORTEST <= len(line) <= LONGEST and re.fullmatch(r"[A-Z][\w\s.,;:'()\"-]+[.:]", line):
            yield line


def table(found: Mapping[str, Scores]) -> str:
    rows = []
    first = next(iter(found.values()))["read"]
    for name, scored in found.items():
        read = scored["read"]
        right = (f"{sum(scored[key])} of {len(scored[key])}" for key in ("questions", "objects", "calls"))
        rows.append((name, len(read), f"{math.exp(-fmean(read)):.3f}", against(read, first), *right))
    return tables.table("format | tokens | perplexity | against the first | questions | JSON | calls", rows)


def against(read: Sequence[float], first: Sequence[float]) -> str:
    """The change of perplexity in per cent, and its standard error."""
    differences = [one - other for one, other in zip(read, first, strict=True)]
    error = stdev(differences) / math.sqrt(len(differences))
    return f"{math.expm1(-fmean(differences)) + 0.0:+.2%} ± {error:.2%}"
