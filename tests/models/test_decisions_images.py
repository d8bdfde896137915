"""Images of decisions: what is decoded, and what a tiny model that sees makes of them."""

from __future__ import annotations

import asyncio
import base64
import io
import struct
import zlib
from collections.abc import AsyncIterator

import pytest
from PIL import Image

from contract.decisions.answers import distribution
from contract.decisions.engine import Readings
from contract.errors import ApiError
from contract.limits import IMAGE_PIXELS
from models.decisions import LabelScorer
from models.llm.images import MAX_RATIO, READ_PIXELS, decode
from tests.models import tiny_models, tiny_scorers
from tests.models.tiny_scorers import QUESTIONS, STATE, job

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(300),
    # What vLLM and torch say about themselves while they are imported.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


def encoded(image: Image.Image, kind: str = "png") -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def address(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def flat(colour: str | tuple[int, ...], size: tuple[int, int] = (80, 40), mode: str = "RGB") -> Image.Image:
    return Image.new(mode, size, colour)


def announced(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is so large."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


RED = address(encoded(flat("red")))
BLUE = address(encoded(flat("blue")))
NOISE = encoded(Image.effect_noise((64, 64), 90).convert("RGB"))

HOSTILE = {
    "not an image": address(b"GIF? no, words"),
    "nothing": address(b""),
    "cut short": address(NOISE[: len(NOISE) // 2]),
    "a header alone": address(NOISE[:40]),
    "another type": address(encoded(flat("red"), "jpeg"), "png"),
    "a page": address(b"<html><script>alert(1)</script></html>", "webp"),
    "a bomb": address(announced(20_000, 20_000)),
    "a lesser bomb": address(announced(10_000, 10_000)),
    "a line": address(announced(1, MAX_RATIO + 1)),
    "no pixels": address(announced(0, 0)),
    "broken in the middle": address(NOISE[:200] + b"\0" * 64 + NOISE[264:]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_image_is_refused(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode(HOSTILE[name])
    assert (caught.value.fault.status, caught.value.param) == (400, "images")


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "gif"])
def test_every_type_is_decoded(kind: str) -> None:
    image = decode(address(encoded(flat("red"), kind), kind))
    red, green, blue = image.getpixel((5, 5))  # type: ignore[misc]
    assert (image.mode, image.size) == ("RGB", (80, 40))
    assert red > 240
    assert max(green, blue) < 15


def test_what_lies_under_transparency_is_white() -> None:
    assert decode(address(encoded(flat((255, 0, 0, 0), mode="RGBA")))).getpixel((5, 5)) == (255, 255, 255)


def test_images_are_upright() -> None:
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # a camera held on its side
    flat("red").save(file, "jpeg", exif=exif)
    assert decode(address(file.getvalue(), "jpeg")).size == (40, 80)


def test_bounds_of_pixels() -> None:
    side = int(IMAGE_PIXELS**0.5)
    large = decode(address(encoded(flat(1, (side, side), "1"))))
    assert READ_PIXELS * 0.9 < large.width * large.height <= READ_PIXELS
    with pytest.raises(ApiError, match="pixels are allowed"):
        decode(address(encoded(flat(1, (side, side + 1), "1"))))
    same = decode(address(encoded(flat(1, (1024, 1024), "1"))))
    assert same.size == (1024, 1024)
    assert decode(address(encoded(flat("red", (MAX_RATIO, 1))))).size == (MAX_RATIO, 1)


# --- through a model -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def scorer(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LabelScorer]:
    engine = tiny_scorers.start(tiny_models.idefics3(tmp_path_factory.mktemp("weights")), images=True)
    yield engine
    engine.close()


def apart(some: Readings, others: Readings) -> float:
    """The largest difference of a probability of the first question."""
    one, other = (distribution(found.reads[0], 1.0).probabilities for found in (some, others))
    return max(abs(p - q) for p, q in zip(one, other, strict=True))


async def test_the_image_decides(scorer: LabelScorer) -> None:
    without = await scorer.decide(job(STATE, QUESTIONS))
    red, blue = [await scorer.decide(job(STATE, QUESTIONS, [image])) for image in (RED, BLUE)]
    assert [len(read.logprobs) for read in red.reads] == [3, 3, 2]
    assert min(apart(without, red), apart(without, blue), apart(red, blue)) > 0.01
    assert apart(red, await scorer.decide(job(STATE, QUESTIONS, [RED]))) == 0


async def test_two_images_have_an_order(scorer: LabelScorer) -> None:
    one_way, other_way = [await scorer.decide(job(STATE, QUESTIONS, pair)) for pair in ([RED, BLUE], [BLUE, RED])]
    assert apart(one_way, other_way) > 1e-3


async def test_each_image_is_counted_once(scorer: LabelScorer) -> None:
    counted = [(await scorer.decide(job(STATE, QUESTIONS, images))).input_tokens for images in ([], [RED], [RED, BLUE])]
    assert counted[1] - counted[0] == counted[2] - counted[1] > 0
    assert (await scorer.decide(job(STATE, QUESTIONS[:1], [RED]))).input_tokens < counted[1]


async def test_parallel_images_do_not_mix(scorer: LabelScorer) -> None:
    pictures = [address(encoded(flat((20 * index, 90, 255 - 20 * index)))) for index in range(8)]
    alone = [await scorer.decide(job(STATE, QUESTIONS, [picture], "a")) for picture in pictures]
    together = await asyncio.gather(*(scorer.decide(job(STATE, QUESTIONS, [picture], "b")) for picture in pictures))
    assert max(map(apart, alone, together)) <= 1e-3
    # How far apart two images are depends on the processor's rounding; each answer must be nearest to its own image.
    nearest = [min(range(8), key=lambda other: apart(alone[other], found)) for found in together]
    assert nearest == list(range(8))


async def test_text_cannot_stand_for_an_image(scorer: LabelScorer) -> None:
    plain = await scorer.decide(job(f"{STATE} {tiny_models.IMAGE}", QUESTIONS, [RED]))
    assert len(plain.reads) == len(QUESTIONS)


async def test_the_engine_lives_through_hostile_images(scorer: LabelScorer) -> None:
    before = await scorer.decide(job(STATE, QUESTIONS, [RED]))
    for hostile in HOSTILE.values():
        with pytest.raises(ApiError) as caught:
            await scorer.decide(job(STATE, QUESTIONS, [RED, hostile]))
        assert caught.value.fault.status == 400
    for size in ((1, 1), (MAX_RATIO, 1), (1, MAX_RATIO)):
        assert (await scorer.decide(job(STATE, QUESTIONS, [address(encoded(flat("red", size)))]))).reads
    await scorer.check_health()
    assert apart(before, await scorer.decide(job(STATE, QUESTIONS, [RED]))) == 0
