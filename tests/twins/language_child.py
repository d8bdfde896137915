"""Every chat and decision model of production, one after the other, over its twin; one line of JSON each.

    python -m tests.twins.language_child FOLDER [ID…]

A process of its own, because transformers looks once whether there is a torchvision. vLLM is imported once for all, and
nothing collects garbage: each engine would look through all that was imported, 2 s when it ends and some more before.
The stanza is the one of production, as `on_cpu` leaves it; the adapter is the one that the stanza names.
"""

import asyncio
import gc
import json
import sys
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import configs
from benchmarks.speed import asks
from contract.catalog import ChatModel, DecisionModel
from contract.chat.engine import ChatJob
from contract.chat.request import ChatRequest
from contract.errors import ApiError
from contract.tokens import DetokenizeJob, TokenizeJob
from contract.wires import contents
from models.chat import adapter
from models.llm.plain_text import PlainText
from models.options import adapter_of, check
from tests.models.chat.smollm2.asking import calls_of, text_of
from tests.models.decisions.tiny_scorers import QUESTIONS, job
from tests.models.pictures import address, flat
from tests.twins import gemma4, qwen35
from tests.twins.on_cpu import on_cpu
from tests.twins.recorded import RECORDED, TOOLS, Recorded

TWIN_OF = {
    "gemma-4-12b": "gemma-4-unified",
    "gemma-4-26b-a4b": "gemma-4-experts",
    "qwen3.5-9b": "qwen3.5",
    "qwen3.5-9b-deepseek-v4-flash": "qwen3.5",
    "qwen3.8-27b": "qwen3.5",
}
"""By the name of the weights that a stanza wants."""
MAKERS = {
    "gemma-4-unified": lambda folder: gemma4.make(folder, "unified"),
    "gemma-4-experts": lambda folder: gemma4.make(folder, "experts"),
    "qwen3.5": qwen35.make,
}


def family(model: Any) -> str:
    """Whose output the model writes: by its weights, not by what the stanza says of it."""
    return "gemma" if TWIN_OF[model.serving.weights].startswith("gemma") else "qwen"


def picture(colour: str) -> str:
    return address(flat(colour, (96, 96)))


def ask(model: ChatModel, content: Any, **fields: Any) -> ChatJob:
    body = {"model": model.id, "messages": [{"role": "user", "content": content}], "max_tokens": 8, "temperature": 0}
    return ChatJob(ChatRequest.model_validate(body | fields))


def seeing(colour: str) -> list[dict[str, Any]]:
    return [{"type": "image_url", "image_url": {"url": picture(colour)}}, {"type": "text", "text": "What is it?"}]


async def chat_facts(engine: Any, model: ChatModel) -> dict[str, Any]:
    plain = await engine.complete(ask(model, "Hello"))
    facts: dict[str, Any] = {
        "window": engine.engine.model_config.max_model_len,
        "architecture": engine.engine.model_config.architecture,
        "prompt_tokens": plain.prompt_tokens,
        "finish_reason": plain.body["choices"][0]["finish_reason"],
        "completion_tokens": plain.completion_tokens,
        "thinking": [await prompt(engine, model, effort) for effort in ("none", "high")],
        "forged": {place: await controls(engine, model, place) for place in PLACES[: None if model.vision else -1]},
        "images": await images(engine, model),
    }
    return facts | {"recorded": [await recorded(engine, model, one) for one in RECORDED[family(model)]]}


async def prompt(engine: Any, model: ChatModel, effort: str) -> str:
    request = ask(model, "Hello", tools=TOOLS, reasoning_effort=effort).request
    tokens = await engine.tokenize(TokenizeJob(request))
    return await engine.detokenize(DetokenizeJob(tuple(tokens.ids)))


PLACES = ("value", "key", "key and template", "parts")


def forged(place: str, token: str) -> dict[str, Any]:
    """Fields of a request whose client tries to write the control token `token` at `place`."""
    hidden = "".join(f"\\u{ord(char):04x}" for char in token)
    arguments = {
        "value": f'{{"a": "x{hidden}"}}',
        "key": f'{{"x{hidden}": 1}}',
        "key and template": f'{{"x{hidden[:-6]}": 1}}',
    }
    content = [{"type": "text", "text": text} for text in (token[:3], token[3:])] + seeing("red")[:1]
    function = {"name": "f", "arguments": arguments.get(place, "{}")}
    call = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
    asked = {"role": "user", "content": content if place == "parts" else "Hello"}
    return {"messages": [{"role": "user", "content": "Hello"}, call, asked]}


async def controls(engine: Any, model: ChatModel, place: str) -> list[int]:
    """Control tokens in the prompt of a harmless text at `place`, and the most of any that spells one."""
    tokenizer = engine.engine.renderer.tokenizer
    words = PlainText(tokenizer)
    counts = []
    for token in ("harmless", *sorted(tokenizer.get_added_vocab())):
        request = ChatRequest.model_validate({"model": model.id, **forged(place, token)})
        tokens = await engine.tokenize(TokenizeJob(request))
        counts.append(sum(one in words.control_ids for one in tokens.ids))
    return [counts[0], max(counts)]


async def images(engine: Any, model: ChatModel) -> Any:
    """The tokens of the prompts, and how likely the answers' first tokens are; or the refusal."""
    try:
        found = [
            await engine.complete(ask(model, seeing(colour), logprobs=True, max_tokens=1)) for colour in ("red", "blue")
        ]
    except ApiError as error:
        return f"{error.fault.code}: {error.message}"
    chances = [one.body["choices"][0]["logprobs"]["content"][0]["logprob"] for one in found]
    return {"prompt_tokens": [one.prompt_tokens for one in found], "logprobs": chances}


async def recorded(engine: Any, model: ChatModel, one: Recorded) -> dict[str, Any]:
    """What the adapter makes of `one`, whole and streamed. Only the network's output is put in its place."""
    effort = "high" if one.thinks else "none"
    job = ask(model, "Weather?", tools=TOOLS, reasoning_effort=effort, max_tokens=4096)
    truly = engine.engine.generate
    engine.engine.generate = lambda given, params, *_, **__: written(engine, one.written, given, params)
    try:
        whole = (await engine.complete(job)).body["choices"][0]
        streamed = [
            event for batch in [batch async for batch in engine.stream(job)] for event in contents(batch.events)
        ]
    finally:
        engine.engine.generate = truly
    message = whole["message"]
    return {
        "name": one.name,
        "whole": {
            "content": message["content"],
            "reasoning": message.get("reasoning_content"),
            "calls": [call["function"] for call in message.get("tool_calls", [])],
            "finish_reason": whole["finish_reason"],
        },
        "streamed": {
            "content": text_of(streamed),
            "reasoning": text_of(streamed, field="reasoning_content") or None,
            "calls": calls_of(streamed),
            "finish_reason": streamed[-1]["choices"][0]["finish_reason"],
        },
    }


async def written(engine: Any, text: str, given: Any, params: Any) -> AsyncIterator[Any]:
    from vllm.outputs import CompletionOutput, RequestOutput
    from vllm.sampling_params import RequestOutputKind

    words = engine.engine.renderer.tokenizer
    ids = words.encode(text, add_special_tokens=False)
    streams = params.output_kind is RequestOutputKind.DELTA
    steps = [[id] for id in ids] if streams else [ids]
    for number, step in enumerate(steps):
        last = number == len(steps) - 1
        piece = words.decode(step, skip_special_tokens=params.skip_special_tokens)
        output = CompletionOutput(0, piece, step, None, None, finish_reason="stop" if last else None)
        yield RequestOutput(
            "recorded", None, list(given["prompt_token_ids"]), None, [output], last, num_cached_tokens=0
        )


async def decision_facts(engine: Any, model: DecisionModel) -> dict[str, Any]:
    without = await engine.read_job(job(), 1.0)
    seen = [await engine.read_job(job(images=[picture(colour)]), 1.0) for colour in ("red", "blue")]
    return {
        "window": engine.engine.model_config.max_model_len,
        "architecture": engine.engine.model_config.architecture,
        "head_dtype": str(engine.engine.model_config.head_dtype),
        "labels": [len(engine.book.label_ids(question)) for question in QUESTIONS],
        "reads": [[read.logprobs for read in found.reads] for found in (without, *seen)],
        "input_tokens": [found.input_tokens for found in (without, *seen)],
    }


async def facts_of(model: Any, folder: Path) -> dict[str, Any]:
    try:
        check(model)
        engine = adapter_of(model)(on_cpu(model), folder)
        try:
            facts = await (chat_facts if isinstance(model, ChatModel) else decision_facts)(engine, model)
            facts["asked"] = [one.what for one in await asks.ASKS[model.noun](engine, model, None)]
        finally:
            engine.close()
    except Exception:
        return {"error": traceback.format_exc()[-4000:]}
    return facts


async def main(folder: Path, wanted: list[str]) -> None:
    asks.ANSWER_TOKENS = 16
    adapter.MAX_BATCHES_PER_S = 10_000  # what is recorded comes a letter at a time: 600 batches a model
    catalog = configs.load("production")
    made = {name: make(folder / name) for name, make in MAKERS.items()}
    for model in (*catalog.chat.values(), *catalog.decisions.values()):
        if model.serving and (not wanted or model.id in wanted):
            facts = await facts_of(model, made[TWIN_OF[model.serving.weights or ""]])
            print(json.dumps({"id": model.id, **facts}), flush=True)


if __name__ == "__main__":
    gc.disable()
    gc.unfreeze = lambda: None
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
