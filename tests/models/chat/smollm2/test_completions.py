"""Plain prompts with real weights, and what they share with chats: counts while they answer, and leaving."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from contract.chat.engine import ChatBatch
from contract.completions import SCORED_PROMPT_TOKENS, CompletionJob, CompletionReply, CompletionRequest
from contract.errors import ApiError
from contract.tokens import TokenizeJob
from models.chat import VllmChat
from models.chat.choices import CompletionPrompt
from tests.models.chat.smollm2.asking import WINDOW, ask, batches, idle
from tests.models.refusals import refused
from tests.sdk import completion_chunk
from tests.waiting import until

CAPITALS = "The capital of France is Paris. The capital of Germany is"


def job(prompt: Any, owner: str = "", **fields: Any) -> CompletionJob:
    body = {"model": "small", "prompt": prompt, "temperature": 0, "max_tokens": 4}
    return CompletionJob(CompletionRequest.model_validate(body | fields), owner)


def texts(reply: CompletionReply) -> list[str]:
    return [choice["text"] for choice in reply.body["choices"]]


async def streamed(chat: VllmChat, job: CompletionJob) -> tuple[list[ChatBatch], list[dict[str, Any]]]:
    sent = [batch async for batch in chat.write_stream(job)]
    events = b"".join(batch.events for batch in sent).decode().split("\n\n")
    return sent, [completion_chunk(json.loads(event.removeprefix("data: "))) for event in events if event]


async def test_a_prompt_is_continued(chat: VllmChat) -> None:
    reply = await chat.write(job(CAPITALS))
    assert texts(reply) == [" Berlin. The capital"]
    assert set(reply.body) == {"id", "object", "created", "model", "choices", "usage"}
    assert (reply.body["object"], reply.body["model"]) == ("text_completion", "small")
    assert reply.body["choices"][0]["finish_reason"] == "length"
    assert (reply.prompt_tokens, reply.completion_tokens) == (12, 4)
    assert reply.body["usage"]["total_tokens"] == 16


async def test_ids_are_the_same_as_their_text_and_control_tokens_only_as_ids(chat: VllmChat, tokenizer: Any) -> None:
    ids = tokenizer(CAPITALS)["input_ids"]
    assert texts(await chat.write(job(ids))) == texts(await chat.write(job(CAPITALS)))
    assert texts(await chat.write(job(ids, echo=True))) == [CAPITALS + " Berlin. The capital"]
    written = await chat.tokenize(TokenizeJob(text="<|im_start|>"))
    assert tokenizer.convert_tokens_to_ids("<|im_start|>") not in written.ids
    assert (await chat.write(job("<|im_start|>"))).prompt_tokens == len(written.ids) > 1
    assert (await chat.write(job([1]))).prompt_tokens == 1


async def test_answers_stand_in_the_order_of_their_prompts(chat: VllmChat) -> None:
    several = await chat.write(job([CAPITALS, "One, two, three,"] * 5, n=2))
    one, other = [texts(await chat.write(job(prompt)))[0] for prompt in (CAPITALS, "One, two, three,")]
    assert texts(several) == [one, one, other, other] * 5
    assert [choice["index"] for choice in several.body["choices"]] == list(range(20))
    assert several.completion_tokens == 20 * 4


async def test_a_stream_says_the_same(chat: VllmChat) -> None:
    asked = job([CAPITALS, "One, two, three,"], n=2, echo=True, logprobs=1, stream_options={"include_usage": True})
    whole = await chat.write(asked)
    sent, events = await streamed(chat, asked)
    *chunks, last = events
    for choice in whole.body["choices"]:
        parts = [part for chunk in chunks for part in chunk["choices"] if part["index"] == choice["index"]]
        assert "".join(part["text"] for part in parts) == choice["text"]
        assert [part["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + ["length"]
        assert choice["logprobs"]
        for member, values in choice["logprobs"].items():
            joined = [value for part in parts for value in part["logprobs"][member]]
            assert len(joined) == len(values)
            assert joined == values or member in ("token_logprobs", "top_logprobs")
    assert all(chunk["usage"] is None and chunk["id"] == last["id"] for chunk in chunks)
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 16)
    counts = [batch.completion_tokens for batch in sent]
    assert counts == sorted(counts)
    assert sent[-1].prompt_tokens == whole.prompt_tokens


@pytest.mark.usefixtures("often")
async def test_whole_answers_say_how_far_they_are(chat: VllmChat) -> None:
    for asked, answer in (
        (job([CAPITALS, "One, two, three,"], max_tokens=40), chat.write),
        (ask("Count to a thousand.", max_tokens=40), chat.complete),
    ):
        *counts, reply = [count async for count in chat.counted(asked)]
        whole = await answer(asked)
        assert (type(reply), reply.body["choices"]) == (type(whole), whole.body["choices"])
        so_far = [count.completion_tokens for count in counts]
        assert sorted({*so_far}) == so_far
        assert 0 < so_far[0] <= so_far[-1] <= reply.completion_tokens
        *early, last = [count.prompt_tokens for count in counts]  # one prompt may be answered before the next is read
        assert max(early, default=0) <= last == reply.prompt_tokens


async def test_the_score_of_a_prompt_is_what_another_library_computes(
    chat: VllmChat, smollm2: Path, tokenizer: Any
) -> None:
    import torch
    import transformers

    # More tokens than the engine reads at one time.
    prompt = tokenizer(" ".join([CAPITALS, "Berlin."] * 10))["input_ids"]
    reply = await chat.write(job(prompt, max_tokens=0, echo=True, logprobs=1))
    (choice,) = reply.body["choices"]
    logprobs = choice["logprobs"]
    assert logprobs
    assert len(logprobs["token_logprobs"]) == len(prompt) > 128
    assert "".join(logprobs["tokens"]) == choice["text"] == tokenizer.decode(prompt)
    assert (logprobs["token_logprobs"][0], logprobs["top_logprobs"][0]) == (None, None)
    assert (reply.completion_tokens, choice["finish_reason"]) == (0, "length")
    ids = torch.tensor([prompt])
    network = transformers.AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    with torch.no_grad():
        table = torch.log_softmax(network(ids).logits[0, :-1], -1)
    expected = table.gather(1, ids[0, 1:, None])[:, 0].tolist()
    assert logprobs["token_logprobs"][1:] == pytest.approx(expected, abs=2e-3)
    best = [max(top.values()) for top in logprobs["top_logprobs"][1:] if top]
    assert best == pytest.approx(table.max(1).values.tolist(), abs=2e-3)


async def test_offsets_lead_to_the_tokens(chat: VllmChat) -> None:
    reply = await chat.write(job(CAPITALS, echo=True, logprobs=5))
    (choice,) = reply.body["choices"]
    logprobs = choice["logprobs"]
    assert logprobs
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert choice["text"][offset : offset + len(token)] == token
    assert all(top is None or 5 <= len(top) <= 6 for top in logprobs["top_logprobs"])


async def test_a_long_prompt_is_cut_at_its_top_unless_it_is_repeated(chat: VllmChat) -> None:
    for extra, cut in ((-1, 0), (0, 4), (1, 5), (2 * WINDOW, 2 * WINDOW + 4)):
        length = WINDOW + extra
        reply = await chat.write(job([1 + index % 9 for index in range(length)]))
        assert (reply.cut_tokens, reply.prompt_tokens) == (cut, length - cut)
        assert reply.body["usage"].get("prompt_tokens_cut", 0) == cut
        assert reply.completion_tokens <= WINDOW - reply.prompt_tokens
    reply = await chat.write(job("no " * 100_000 + CAPITALS))  # cut before it becomes tokens
    assert texts(reply) == texts(await chat.write(job("no " * 1000 + CAPITALS)))
    assert reply.cut_tokens > 10_000
    assert (await chat.write(job([5] * (WINDOW - 1), echo=True))).completion_tokens == 1
    with refused(400, f"at most {WINDOW - 1} fit"):
        await chat.write(job([5] * WINDOW, echo=True))


async def test_a_gap_is_filled_between_its_control_tokens(chat: VllmChat, tokenizer: Any) -> None:
    prepare = chat._completions._prepared
    prepared = await prepare(job("before", suffix=" after").request, "before")
    assert tokenizer.decode(prepared.ids) == "<repo_name>before<file_sep> after<filename>"
    long = await prepare(job([5] * WINDOW, suffix=" after").request, (5,) * WINDOW)
    assert tokenizer.decode(long.ids[-3:]) == "<file_sep> after<filename>"
    assert len(long.ids) == WINDOW - 4
    with refused(400, param="suffix"):
        await chat.write(job("before", suffix=" after" * WINDOW))


async def test_an_id_of_a_prompt_beyond_the_vocabulary_is_refused(chat: VllmChat) -> None:
    assert (await chat.write(job([49_151]))).prompt_tokens == 1
    for prompt in ([49_152], [[1], [2**70]]):
        with refused(400, "ids are 0 to 49151", param="prompt"):
            await chat.write(job(prompt))


def test_logprobs_are_bounded() -> None:
    from models.chat.completions import check_logprobs

    def check(lengths: list[int], **fields: Any) -> None:
        request = job([[1] * length for length in lengths], logprobs=0, **fields).request
        check_logprobs(request, [CompletionPrompt([1] * length, request.budget) for length in lengths])

    check([SCORED_PROMPT_TOKENS + 1], max_tokens=1)
    check([SCORED_PROMPT_TOKENS], max_tokens=0, echo=True)
    with pytest.raises(ApiError, match="it may have at most 4096"):
        check([SCORED_PROMPT_TOKENS + 1], max_tokens=0, echo=True)
    check([1024] * 64, max_tokens=0, echo=True)
    with pytest.raises(ApiError, match="`logprobs` of up to 65600 tokens"):
        check([1024] * 64, max_tokens=1, echo=True)


async def test_stop_ends_the_answer_before_it_and_a_seed_repeats_it(chat: VllmChat) -> None:
    (choice,) = (await chat.write(job(CAPITALS, stop=" The"))).body["choices"]
    assert (choice["text"], choice["finish_reason"]) == (" Berlin.", "stop")

    async def told(seed: int) -> str:
        return texts(await chat.write(job("Once", temperature=1.5, seed=seed, max_tokens=12)))[0]

    assert await told(7) == await told(7) != await told(8)


async def test_what_an_organisation_sent_before_is_cached_for_it_alone(chat: VllmChat) -> None:
    prompt = [3 + index for index in range(100)]
    first = await chat.write(job(prompt, "a", n=2))
    again, other = await chat.write(job(prompt, "a")), await chat.write(job(prompt, "b"))
    assert (first.cached_tokens, other.cached_tokens) == (0, 0)
    assert again.cached_tokens > 50


@pytest.mark.usefixtures("often")
async def test_a_client_that_leaves_frees_the_engine(chat: VllmChat) -> None:
    long, plain = ask("Count to a thousand.", max_tokens=400), job(["Once"] * 20, max_tokens=200, temperature=1)
    several = ask("Count to a thousand.", n=2, max_tokens=400)
    for parts in (chat.stream(several), chat.counted(long), chat.write_stream(plain)):
        while (await anext(parts)).completion_tokens < 4:
            pass
        assert chat.unfinished
        await parts.aclose()
        await idle(chat)
    for answer in (chat.complete(long), batches(chat, long), chat.write(plain)):
        waiting = asyncio.ensure_future(answer)
        await until(lambda: chat.unfinished > 0)
        assert chat.unfinished <= 8, "one request fills the engine"
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await idle(chat)
