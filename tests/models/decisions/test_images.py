"""Images of decisions: what is decoded, and what a tiny model that sees makes of them."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from PIL import Image

from contract.decisions.answers import distribution
from contract.decisions.engine import Readings
from contract.errors import ApiError
from contract.limits import IMAGE_PIXELS
from models.decisions import LabelScorer
from models.llm.images import MAX_RATIO, READ_PIXELS, decode
from tests.models import tiny_models
from tests.models.decisions import tiny_scorers
from tests.models.decisions.tiny_scorers import QUESTIONS, STATE, job
from tests.models.pictures import address, announced, encoded, flat
from tests.models.refusals import refused

RED = address(flat("red"))
BLUE = address(flat("blue"))
NOISE = encoded(Image.effect_noise((64, 64), 90).convert("RGB"))

HOSTILE = {
    "not an image": address(b"GIF? no, words"),
    "nothing": address(b""),
    "cut short": address(NOISE[: len(NOISE) // 2]),
    "a header alone": address(NOISE[:40]),
    "another type": address(encoded(flat("red"), "jpeg"), "png"),
    "a page": address(b"<html><script>alert(1)</script></html>", "webp"),
    "a bomb": announced(20_000, 20_000),
    "a lesser bomb": announced(10_000, 10_000),
    "a line": announced(1, MAX_RATIO + 1),
    "no pixels": announced(0, 0),
    "broken in the middle": address(NOISE[:200] + b"\0" * 64 + NOISE[264:]),
}


def test_every_type_is_decoded_and_what_is_no_image_is_refused() -> None:
    for kind in ("png", "jpeg", "webp", "gif"):
        image = decode(address(flat("red"), kind))
        red, green, blue = image.getpixel((5, 5))  # type: ignore[misc]
        assert (image.mode, image.size) == ("RGB", (80, 40))
        assert (red > 240, max(green, blue) < 15) == (True, True), kind
    for name, hostile in HOSTILE.items():
        with refused(400, param="images"):
            pytest.fail(f"{name}: {decode(hostile)}")


def test_images_are_upright_and_what_lies_under_transparency_is_white() -> None:
    assert decode(address(flat((255, 0, 0, 0), mode="RGBA"))).getpixel((5, 5)) == (255, 255, 255)
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # a camera held on its side
    flat("red").save(file, "jpeg", exif=exif)
    assert decode(address(file.getvalue(), "jpeg")).size == (40, 80)


def test_bounds_of_pixels() -> None:
    side = int(IMAGE_PIXELS**0.5)
    large = decode(address(flat(1, (side, side), "1")))
    assert READ_PIXELS * 0.9 < large.width * large.height <= READ_PIXELS
    with pytest.raises(ApiError, match="pixels are allowed"):
        decode(address(flat(1, (side, side + 1), "1")))
    same = decode(address(flat(1, (1024, 1024), "1")))
    assert same.size == (1024, 1024)
    assert decode(address(flat("red", (MAX_RATIO, 1)))).size == (MAX_RATIO, 1)


# --- through a model -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def scorer(anyio_backend: str, idefics3: Path) -> AsyncIterator[LabelScorer]:
    engine = tiny_scorers.start(idefics3, images=True)
    yield engine
    engine.close()


def apart(some: Readings, others: Readings) -> float:
    one, other = (distribution(found.reads[0], 1.0).probabilities for found in (some, others))
    return max(abs(p - q) for p, q in zip(one, other, strict=True))


async def test_the_image_decides(scorer: LabelScorer) -> None:
    without = await scorer.decide(job(STATE, QUESTIONS))
    red, blue = [await scorer.decide(job(STATE, QUESTIONS, [image])) for image in (RED, BLUE)]
    assert [len(read.logprobs) for read in red.reads] == [3, 3, 2]
    assert min(apart(without, red), apart(without, blue), apart(red, blue)) > 0.01
    assert apart(red, await scorer.decide(job(STATE, QUESTIONS, [RED]))) == 0


async def test_two_images_have_an_order_and_each_is_counted_once(scorer: LabelScorer) -> None:
    one_way, other_way = [await scorer.decide(job(STATE, QUESTIONS, pair)) for pair in ([RED, BLUE], [BLUE, RED])]
    assert apart(one_way, other_way) > 1e-3
    counted = [(await scorer.decide(job(STATE, QUESTIONS, images))).input_tokens for images in ([], [RED], [RED, BLUE])]
    assert counted[1] - counted[0] == counted[2] - counted[1] > 0
    assert (await scorer.decide(job(STATE, QUESTIONS[:1], [RED]))).input_tokens < counted[1]


async def test_parallel_images_do_not_mix(scorer: LabelScorer) -> None:
    pictures = [address(flat((20 * index, 90, 255 - 20 * index))) for index in range(8)]
    alone = [await scorer.decide(job(STATE, QUESTIONS, [picture], "a")) for picture in pictures]
    together = await asyncio.gather(*(scorer.decide(job(STATE, QUESTIONS, [picture], "b")) for picture in pictures))
    assert max(map(apart, alone, together)) <= 1e-3
    # How far apart two images are depends on the processor's rounding; each answer must be nearest to its own image.
    nearest = [min(range(8), key=lambda other: apart(alone[other], found)) for found in together]
    assert nearest == list(range(8))


async def test_the_engine_lives_through_hostile_images_and_text_that_stands_for_one(scorer: LabelScorer) -> None:
    plain = await scorer.decide(job(f"{STATE} {tiny_models.IMAGE}", QUESTIONS, [RED]))
    assert len(plain.reads) == len(QUESTIONS)
    before = await scorer.decide(job(STATE, QUESTIONS, [RED]))
    for hostile in HOSTILE.values():
        with refused(400):
            await scorer.decide(job(STATE, QUESTIONS, [RED, hostile]))
    for size in ((1, 1), (MAX_RATIO, 1), (1, MAX_RATIO)):
        assert (await scorer.decide(job(STATE, QUESTIONS, [address(flat("red", size))]))).reads
    await scorer.check_health()
    assert apart(before, await scorer.decide(job(STATE, QUESTIONS, [RED]))) == 0
