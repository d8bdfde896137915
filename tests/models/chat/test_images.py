"""Images in inputs longer than the window, with a tiny model that sees: kept or dropped whole."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract.chat.engine import ChatJob
from contract.chat.request import ChatRequest
from contract.errors import ApiError
from contract.limits import CHAT_PIXELS, IMAGE_PIXELS
from contract.tokens import TokenizeJob
from models.chat import VllmChat
from models.chat.request import engine_fields
from models.llm.images import refuse_large
from tests.models.chat.engines import stanza
from tests.models.pictures import address, announced, encoded, flat
from tests.models.refusals import refused
from tests.waiting import until

WINDOW = 160
ANSWER = 20
ROOM = WINDOW - ANSWER
COLOURS = ["red", "green", "blue", "white", "black", "yellow", "cyan", "magenta", "orange", "purple", "pink", "navy"]


@pytest.fixture(scope="module")
async def sees(anyio_backend: str, idefics3: Path) -> AsyncIterator[VllmChat]:
    model = stanza("sees", WINDOW, {"limit_mm_per_prompt": {"image": 16}}, tier="vision", vision=True)
    engine = VllmChat(model, idefics3)
    yield engine
    engine.close()


def image(colour: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": address(flat(colour))}}


def words(count: int) -> dict[str, Any]:
    return {"type": "text", "text": " word" * count}


def ask(*parts: dict[str, Any], **fields: Any) -> ChatJob:
    body = {"model": "sees", "messages": [{"role": "user", "content": list(parts)}], "max_tokens": ANSWER}
    return ChatJob(ChatRequest.model_validate(body | {"temperature": 0} | fields))


async def rendered(sees: VllmChat, job: ChatJob, owner: str = "") -> tuple[Any, int]:
    from models.chat.serving import EngineRequest

    request = EngineRequest(model="sees", **engine_fields(job.request, owner))
    cache = sees.engine.renderer.mm_processor_cache
    before = set(cache._cache)
    _, (prompt,) = await sees._serving.render_chat_request(request)
    for one in prompt.get("mm_hashes", {}).get("image", ()):
        cache.invalidate(one)  # no engine gets this one
    assert set(cache._cache) <= before, "an engine would not be sent an image that was cut before"
    return prompt, request.cut_tokens


def images_of(sees: VllmChat, prompt: Any) -> int:
    """How many whole images `prompt` has; each of their places holds exactly its tokens, and no other place does."""
    ids = prompt["prompt_token_ids"]
    tokenizer = sees.engine.renderer.tokenizer
    places = prompt.get("mm_placeholders", {}).get("image", [])
    around, first, pixel = tokenizer.convert_tokens_to_ids(["<fake_token_around_image>", "<global-img>", "<image>"])
    for place in places:
        assert ids[place.offset : place.offset + place.length] == [around, first, *[pixel] * 4, around]
    assert ids.count(pixel) == 4 * len(places)
    assert len(prompt.get("mm_hashes", {}).get("image", [])) == len(places)
    return len(places)


FRAME = 9
"""Tokens of the template around one message: three before it and six behind."""
IMAGE = 7
"""Tokens of an image."""


async def test_an_input_with_images_that_fits_is_not_cut(sees: VllmChat) -> None:
    for surplus, kept, cut in ((-2, WINDOW - 2, 0), (-1, WINDOW - 1, 0), (0, ROOM, ANSWER), (1, ROOM, ANSWER + 1)):
        parts = words(WINDOW - FRAME - 2 * IMAGE + surplus), image("red"), image("blue")
        prompt, cut_tokens = await rendered(sees, ask(*parts))
        assert (len(prompt["prompt_token_ids"]), cut_tokens) == (kept, cut)
        assert images_of(sees, prompt) == 2


async def test_an_image_is_kept_whole_or_dropped_whole(sees: VllmChat) -> None:
    """Behind the first token, `ROOM - 1` are kept: the image and 126 words at most, with the end of the turn."""
    for behind, images, kept in ((125, 1, ROOM), (126, 1, ROOM), (127, 0, ROOM - 6), (133, 0, ROOM), (134, 0, ROOM)):
        prompt, cut_tokens = await rendered(sees, ask(words(30), image("red"), words(behind)))
        assert len(prompt["prompt_token_ids"]) == kept
        assert cut_tokens == FRAME + 30 + IMAGE + behind - kept
        assert images_of(sees, prompt) == images


async def test_the_oldest_of_many_images_go_and_the_answer_keeps_its_room(sees: VllmChat) -> None:
    parts = [part for colour in COLOURS for part in (words(8), image(colour))]
    prompt, cut_tokens = await rendered(sees, ask(*parts))
    assert images_of(sees, prompt) == 9
    assert ROOM - IMAGE < len(prompt["prompt_token_ids"]) <= ROOM
    reply = await sees.complete(ask(*parts))
    assert (reply.prompt_tokens, reply.cut_tokens) == (len(prompt["prompt_token_ids"]), cut_tokens)
    assert reply.completion_tokens >= 1
    assert reply.body["usage"]["prompt_tokens_cut"] == cut_tokens


async def test_images_before_a_text_of_many_windows_are_dropped_and_not_those_behind_it(sees: VllmChat) -> None:
    prompt, cut_tokens = await rendered(sees, ask(image("red"), words(100_000), image("blue"), words(5)))
    assert (images_of(sees, prompt), len(prompt["prompt_token_ids"])) == (1, ROOM)
    assert cut_tokens > WINDOW
    prompt, _ = await rendered(sees, ask(image("red"), words(100_000)))
    assert (images_of(sees, prompt), len(prompt["prompt_token_ids"])) == (0, ROOM)


async def test_an_image_that_was_dropped_can_come_again(sees: VllmChat) -> None:
    """Alone, and in one input with itself: the engine has to get its pixels in the end."""
    dropped = ask(image("teal"), words(150))
    assert (await sees.complete(dropped)).cut_tokens
    seen = await sees.complete(ask(image("teal"), words(3)))
    assert (await sees.complete(ask(image("olive"), words(150), image("olive"), words(3)))).completion_tokens
    assert (await sees.complete(ask(image("teal"), words(3)))).body["choices"] == seen.body["choices"]
    assert (await sees.complete(dropped)).cut_tokens


LONG = "word " * 50_000
TOOL = {"type": "function", "function": {"name": "f", "description": LONG}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": LONG})}}
CALLED = {"role": "assistant", "tool_calls": [CALL]}
SEEN = {"role": "user", "content": [image("red")]}


async def test_tools_longer_than_the_window_are_refused_beside_images_and_calls_are_cut(sees: VllmChat) -> None:
    with refused(400, param="tools"):
        await sees.complete(ask(image("red"), tools=[TOOL], tool_choice="none"))
    prompt, _ = await rendered(sees, ask(messages=[SEEN, CALLED, SEEN]))
    alone, _ = await rendered(sees, ask(messages=[{"role": "assistant", "content": ""}, SEEN]))
    assert prompt["prompt_token_ids"][-FRAME:] == alone["prompt_token_ids"][-FRAME:]


class Tokens:
    """All that is asked of a tokenizer here: 0 begins a text, 1 and 2 stand around images, 9 is an image's."""

    bos_token_id = 0
    all_special_ids = (0, 1, 2, 9)


def cut(ids: list[int], window: int, reserve: int, hashes: str = "") -> tuple[list[int], list[int], Any]:
    """What is left of `ids`, where its images begin, and their pixels. Every run of 9 is an image."""
    from vllm.multimodal.inputs import MultiModalKwargsItems, PlaceholderRange

    from models.chat.cut import cut_expanded
    from models.llm.vllm_internals.serving import CutAtTop

    runs = [(m.start(), m.end() - m.start()) for m in re.finditer("9+", "".join(map(str, ids)))]
    hashes = hashes or "abcdefg"[: len(runs)]
    prompt = {
        "type": "multimodal",
        "prompt_token_ids": ids,
        "arrival_time": 1.0,
        "mm_placeholders": {"image": [PlaceholderRange(offset=start, length=length) for start, length in runs]},
        "mm_hashes": {"image": list(hashes)},
        "mm_kwargs": MultiModalKwargsItems(
            {"image": [None if one in hashes[:i] else f"pixels of {one}" for i, one in enumerate(hashes)]}  # type: ignore[misc]
        ),
    }
    params = CutAtTop(max_total_tokens=window, truncate_prompt_tokens=-1, truncation_side="left", reserve=reserve)
    left: Any = cut_expanded(prompt, params, Tokens())  # type: ignore[arg-type]
    assert params.cut.tokens == len(ids) - len(left["prompt_token_ids"])
    places = [place.offset for place in left.get("mm_placeholders", {}).get("image", [])]
    return left["prompt_token_ids"], places, left.get("mm_kwargs", {}).get("image", [])


def test_control_tokens_around_an_image_go_and_stay_with_it() -> None:
    ids = [0, 3, 1, 9, 9, 2, 4, 5, 6]
    assert cut(ids, 9, 2)[:2] == ([0, 4, 5, 6], [])
    assert cut(ids, 9, 1)[:2] == ([0, 1, 9, 9, 2, 4, 5, 6], [2])
    assert cut(ids, 10, 1)[:2] == (ids, [3])
    side_by_side = [0, 1, 9, 9, 2, 1, 9, 2, 1, 9, 2, 3]
    assert cut(side_by_side, 9, 1)[:2] == ([0, 1, 9, 2, 1, 9, 2, 3], [2, 5])
    assert cut(side_by_side, 8, 1)[:2] == ([0, 1, 9, 2, 3], [2])
    assert cut([0, 3, 9, 1, 9, 1, 9, 4], 8, 3)[:2] == ([0, 9, 1, 9, 4], [1, 3])
    twice = cut([0, 9, 3, 3, 3, 9, 4, 9], 6, 1, "aba")
    assert twice == ([0, 3, 9, 4, 9], [2, 4], ["pixels of b", "pixels of a"]), "it keeps its pixels"


def test_an_image_that_could_not_fit_alone_is_refused() -> None:
    fits = [0, 9, 9, 9, 9, 3, 3, 3]
    assert cut(fits, 7, 2)[0] == [0, 3, 3, 3]
    with refused(400, "5 tokens, but only 4 fit"):
        cut([0, 9, 9, 9, 9, 9, 3, 3], 7, 2)


def sized(*sizes: tuple[int, int]) -> list[tuple[str, str]]:
    return [(f"messages[{number}].content", announced(*size)) for number, size in enumerate(sizes)]


def test_an_image_of_as_many_pixels_as_are_allowed_is_taken_and_a_larger_one_is_refused() -> None:
    for size in ((24_999_999, 1), (5000, 5000), (1, IMAGE_PIXELS)):
        assert size[0] * size[1] in (IMAGE_PIXELS - 1, IMAGE_PIXELS)
        refuse_large(sized(size))
    for width, height in ((1, 25_000_001), (5000, 5001), (9000, 9000)):
        says = f"{width} x {height} pixels was sent; at most 25000000 pixels are allowed"
        with refused(400, says, param="messages[1].content"):
            refuse_large(sized((1, 1), (width, height)))
    for side in (13_000, 60_000):  # which the decoder itself would refuse
        with refused(400, "25000000 pixels was sent", param="messages[0].content"):
            refuse_large(sized((side, side)))
    with pytest.raises(ApiError, match="png, jpeg, gif, webp"):  # vLLM would read forty kinds, whatever an address says
        refuse_large([("messages", address(encoded(flat("red"), "tiff")))])


def test_all_images_of_a_request_together_are_bounded() -> None:
    three = [(5000, 5000)] * 3
    for more in ((1, 24_999_999), (5000, 5000)):
        refuse_large(sized(*three, more))
    with refused(400, f"images of {CHAT_PIXELS + 1} pixels together", param="messages"):
        refuse_large(sized(*three, (5000, 5000), (1, 1)))


async def test_a_bomb_is_refused_before_it_is_decoded_by_chats_and_by_counts_of_tokens(sees: VllmChat) -> None:
    """13,000 x 13,000 pixels of one bit are 20 kB, and 0.85 GB once they are decoded."""
    bomb = {"type": "image_url", "image_url": {"url": announced(9_000, 9_000)}}
    job = ask(image("red"), bomb)
    for asked in (sees.complete(job), sees.tokenize(TokenizeJob(job.request)), anext(sees.stream(job))):
        with refused(400, "9000 x 9000 pixels was sent", param="messages[0].content"):
            await asked
    assert (await sees.complete(ask(image("red")))).completion_tokens


async def test_organisations_take_turns_at_decoding_and_text_waits_for_none(sees: VllmChat) -> None:
    slots = sees._serving.online_renderer._image_slots
    async with slots.of("org-1"), slots.of("org-1"), slots.of("org-1"):
        waits = asyncio.create_task(sees.complete(replace(ask(image("red")), owner="org-1")))
        await until(lambda: slots.waiting)
        assert (await sees.complete(replace(ask(image("blue")), owner="org-2"))).completion_tokens
        assert (await sees.complete(replace(ask(words(3)), owner="org-1"))).completion_tokens
        assert not waits.done()
    assert (await waits).completion_tokens


async def test_what_is_kept_of_an_image_is_found_by_its_organisation_alone(sees: VllmChat) -> None:
    async def name(owner: str) -> str:
        prompt, _ = await rendered(sees, ask(image("red"), words(2)), owner)
        (found,) = prompt["mm_hashes"]["image"]
        return str(found)

    assert await name("org-1") == await name("org-1") != await name("org-2")
    assert await name("") != await name(""), "what counts tokens alone leaves nothing to be found"
