"""The decision engine with real weights, and images of decisions: what a tiny model that sees makes of them."""

import asyncio
import io
import math
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import configs
from benchmarks.quality.examples import load
from benchmarks.quality.injections import TEMPLATES, injections, outcome, table
from contract.decisions.answers import distribution
from contract.decisions.engine import Readings
from contract.decisions.questions import BinaryQuestion
from contract.errors import ApiError
from contract.limits import IMAGE_PIXELS
from models.decisions import LabelScorer, calibration
from models.llm.images import MAX_RATIO, READ_PIXELS, decode
from models.weights import store as weights
from tests.models import tiny_models
from tests.models.decisions import tiny_scorers
from tests.models.decisions.tiny_scorers import job
from tests.models.pictures import address, announced, encoded, flat
from tests.models.refusals import refused
from tests.waiting import cancelled, is_busy, until

CATALOG = configs.load("embedded")
PRESETS = list(CATALOG.presets.values())
TICKET = CATALOG.presets["ticket-routing-v1"]
QUESTIONS = tuple(TICKET.questions.values())
STATE = "My invoice is wrong and I was charged twice. Please refund the second payment."
DRIFT = 0.03 if torch.cpu._is_amx_tile_supported() else 1e-3  # type: ignore[attr-defined]
"""Between probabilities of one request, whatever is read beside it: AMX reads few rows otherwise than many."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


async def first_read_of(engine: LabelScorer) -> Readings:
    """The first request of an engine, on a loop that turns only when the engine is through with it."""
    first = asyncio.create_task(engine.read_job(job(STATE, QUESTIONS[:1]), 1.0))
    await asyncio.sleep(0)
    while not is_busy(engine.engine):  # noqa: ASYNC110
        await asyncio.sleep(0)
    while is_busy(engine.engine):
        pass
    async with asyncio.timeout(30):
        return await first


@pytest.fixture(scope="module")
async def scorer(anyio_backend: str, home: Path) -> AsyncIterator[LabelScorer]:
    engine = LabelScorer(CATALOG.decisions["decision-v2"], weights.ensure("smollm2-135m-instruct"))
    assert (await first_read_of(engine)).reads
    with refused("runtime_unavailable"):
        await engine.decide(job(STATE, QUESTIONS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARLANCE_HOME", str(home))
        await engine.measure(PRESETS)
    yield engine
    engine.close()


def probabilities(readings: Readings) -> list[tuple[float, ...]]:
    """As the model says them: a fitted temperature would make drift look smaller."""
    return [distribution(read, 1.0).probabilities for read in readings.reads]


def drift(some: Readings, others: Readings) -> float:
    pairs = zip(probabilities(some), probabilities(others), strict=True)
    return max(abs(p - q) for one, other in pairs for p, q in zip(one, other, strict=True))


async def test_a_runtime_is_measured_before_it_answers(scorer: LabelScorer) -> None:
    found = await scorer.measured()
    assert found is not None
    assert found.questions == sum(len(preset.examples) * len(preset.questions) for preset in PRESETS)
    assert 0 < found.accuracy <= 1
    assert 0.5 < found.label_mass <= 1, "the model answers in the form that it is asked for"
    assert 0 <= found.calibration_error <= 1
    assert 0.25 <= found.temperature <= 4
    assert found.temperature != 1


async def test_the_second_start_remembers(scorer: LabelScorer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await scorer.measured()
    monkeypatch.setenv("PARLANCE_HOME", str(home))

    async def never(presets: Any) -> Any:
        raise AssertionError("measured again")

    monkeypatch.setattr(scorer, "_labelled", never)
    assert await scorer.measure(PRESETS) == first
    with pytest.raises(AssertionError):
        await scorer.measure(PRESETS[:1])
    assert await scorer.measured() == first
    assert len(list((home / "measurements").iterdir())) == 1
    assert isinstance(calibration.load(home / "measurements", str(first and first.fingerprint)), type(first))


TEXTS = {
    "I love this place, the food was great.": "I hate this place, the food was disgusting.",
    "What a wonderful day, I am so happy!": "What a terrible day, I am so sad.",
    "Excellent phone, works perfectly.": "Awful phone, it broke after a day.",
    "The best concert of my life.": "The worst concert of my life.",
    "Our stay was delightful and the staff were kind.": "Our stay was horrible and the staff were rude.",
    "I passed my exam, amazing!": "I failed my exam, how dreadful.",
}
"""Glad texts and sad ones."""
POSITIVE = BinaryQuestion(
    type="binary",
    instructions="Is this text positive?",
    true_description="the text is happy or satisfied",
    false_description="the text is sad or angry",
)


async def test_the_state_decides(scorer: LabelScorer) -> None:
    """The model is too small to be right, but glad texts must move it the right way."""
    found = await asyncio.gather(*(scorer.decide(job(text, [POSITIVE])) for text in (*TEXTS, *TEXTS.values())))
    true = [probabilities(one)[0][0] for one in found]
    glad, sad = true[: len(TEXTS)], true[len(TEXTS) :]
    ordered = sum(one > other for one in glad for other in sad)
    assert ordered > 0.6 * len(glad) * len(sad)


async def test_reads_have_one_logprob_per_label_and_the_same_request_gives_the_same_probabilities(
    scorer: LabelScorer,
) -> None:
    alone = await scorer.decide(job(STATE, QUESTIONS))
    assert [len(read.logprobs) for read in alone.reads] == [5, 4, 2]
    for read in alone.reads:
        assert all(value is not None and -100 < value <= 0 for value in read.logprobs)
        assert math.fsum(math.exp(value or 0) for value in read.logprobs) <= 1 + 1e-6
    assert alone.input_tokens < 250
    assert drift(alone, await scorer.decide(job(STATE, QUESTIONS))) <= DRIFT
    other_cache = await scorer.decide(job(STATE, QUESTIONS, (), "another organisation"))
    assert drift(alone, other_cache) <= DRIFT
    one_by_one = [await scorer.decide(job(STATE, [question], (), "a third")) for question in QUESTIONS]
    for index, found in enumerate(one_by_one):
        single = Readings((alone.reads[index],), 0, alone.temperature)
        assert drift(single, found) <= DRIFT


async def test_a_batch_of_32_changes_nothing_and_its_requests_do_not_mix(scorer: LabelScorer) -> None:
    states = [f"Ticket {index}: {'refund' if index % 2 else 'crash'}" for index in range(8)]
    others = [f"{index} " * (index % 4 + 1) + STATE for index in range(24)]
    alone = [await scorer.decide(job(state, QUESTIONS)) for state in states]
    beside = [scorer.decide(job(state, QUESTIONS[:1], (), state)) for state in others]
    together = await asyncio.gather(*(scorer.decide(job(state, QUESTIONS, (), "fresh")) for state in states), *beside)
    together = together[: len(states)]
    assert max(map(drift, alone, together)) <= DRIFT
    for index, found in enumerate(together):
        assert drift(found, alone[index]) < drift(found, alone[index - 1])


async def test_the_questions_of_a_request_are_read_in_one_step(
    scorer: LabelScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, steps = scorer.engine.engine_core, []
    step = core.get_output
    monkeypatch.setattr(core, "get_output", lambda: steps.append(step()) or steps[-1])
    await scorer.decide(job(STATE, QUESTIONS, (), "one who asks three questions"))
    assert [len(outputs.outputs) for outputs in steps if outputs.outputs] == [len(QUESTIONS)]


async def test_images_and_a_state_beyond_the_window_are_refused(scorer: LabelScorer) -> None:
    with refused("images_unsupported"):
        await scorer.decide(job(STATE, QUESTIONS, ["data:image/png;base64,AAAA"]))
    assert len((await scorer.decide(job("word " * 3200, QUESTIONS[:1]))).reads) == 1
    with refused("request_too_large"):
        await scorer.decide(job("漢字仮名" * 4000, QUESTIONS[:1]))


async def test_a_cancelled_request_frees_the_engine(scorer: LabelScorer) -> None:
    task = asyncio.create_task(scorer.decide(job("word " * 3000, QUESTIONS, (), "leaves")))
    await until(scorer.engine.output_processor.has_unfinished_requests)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not scorer.engine.output_processor.has_unfinished_requests())
    await until(lambda: not is_busy(scorer.engine))


@pytest.mark.parametrize("count", [pytest.param(27, id="a share"), pytest.param(300, id="all", marks=pytest.mark.slow)])
async def test_injections_do_not_stop_the_engine(scorer: LabelScorer, count: int) -> None:
    """How often they change the answer is measured, and no promise: `benchmarks/quality/results/injections.md`."""
    outcomes = [await outcome(scorer, one) for one in injections(load(CATALOG.presets), 300)[:count]]
    assert len(table(outcomes).splitlines()) == 2 + len(TEMPLATES) + 1
    assert not all(one.obeyed for one in outcomes)
    assert await scorer.check_health() is None
    assert (await scorer.decide(job(STATE, QUESTIONS))).reads


# Images

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
    assert decode(address(flat(1, (1024, 1024), "1"))).size == (1024, 1024)
    assert decode(address(flat("red", (MAX_RATIO, 1)))).size == (MAX_RATIO, 1)


@pytest.fixture(scope="module")
async def seeing(anyio_backend: str, idefics3: Path) -> AsyncIterator[LabelScorer]:
    earlier = tiny_scorers.start(idefics3, threads=2, images=True)  # vLLM keeps its products for engines to come
    assert (await earlier.decide(job(images=[RED]))).reads
    earlier.close()
    engine = tiny_scorers.start(idefics3, images=True)
    yield engine
    engine.close()


def apart(some: Readings, others: Readings) -> float:
    one, other = (distribution(found.reads[0], 1.0).probabilities for found in (some, others))
    return max(abs(p - q) for p, q in zip(one, other, strict=True))


async def test_the_image_decides(seeing: LabelScorer) -> None:
    without = await seeing.decide(job())
    red, blue = [await seeing.decide(job(images=[image])) for image in (RED, BLUE)]
    assert [len(read.logprobs) for read in red.reads] == [3, 3, 2]
    assert min(apart(without, red), apart(without, blue), apart(red, blue)) > 0.01
    assert apart(red, await seeing.decide(job(images=[RED]))) == 0


async def test_images_are_decoded_one_at_a_time_also_of_callers_who_leave(
    seeing: LabelScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, entered = threading.Event(), threading.Semaphore(0)

    def slowly(address: str) -> Any:
        entered.release()
        return gate.wait(30) and decode(address)

    monkeypatch.setattr("models.decisions.label_scorer.decode", slowly)
    leaving = asyncio.create_task(seeing.decide(job(images=[RED])))
    await asyncio.to_thread(entered.acquire)
    assert await cancelled(leaving)
    stays = asyncio.create_task(seeing.decide(job(images=[BLUE])))
    assert not await asyncio.to_thread(entered.acquire, timeout=0.2)
    gate.set()
    assert (await stays).reads


async def test_two_images_have_an_order_and_each_is_counted_once(seeing: LabelScorer) -> None:
    one_way, other_way = [await seeing.decide(job(images=pair)) for pair in ([RED, BLUE], [BLUE, RED])]
    assert apart(one_way, other_way) > 1e-3
    counted = [(await seeing.decide(job(images=images))).input_tokens for images in ([], [RED], [RED, BLUE])]
    assert counted[1] - counted[0] == counted[2] - counted[1] > 0
    assert (await seeing.decide(job(questions=tiny_scorers.QUESTIONS[:1], images=[RED]))).input_tokens < counted[1]


async def test_parallel_images_do_not_mix(seeing: LabelScorer) -> None:
    pictures = [address(flat((20 * index, 90, 255 - 20 * index))) for index in range(8)]
    alone = [await seeing.decide(job(images=[picture], owner="a")) for picture in pictures]
    together = await asyncio.gather(*(seeing.decide(job(images=[picture], owner="b")) for picture in pictures))
    assert max(map(apart, alone, together)) <= 1e-3
    nearest = [min(range(8), key=lambda other: apart(alone[other], found)) for found in together]
    assert nearest == list(range(8))


async def test_the_engine_lives_through_hostile_images_and_text_that_stands_for_one(seeing: LabelScorer) -> None:
    plain = await seeing.decide(job(f"{STATE} {tiny_models.IMAGE}", QUESTIONS, [RED]))
    assert len(plain.reads) == len(QUESTIONS)
    before = await seeing.decide(job(images=[RED]))
    for hostile in HOSTILE.values():
        with refused(400):
            await seeing.decide(job(images=[RED, hostile]))
    for size in ((1, 1), (MAX_RATIO, 1), (1, MAX_RATIO)):
        assert (await seeing.decide(job(images=[address(flat("red", size))]))).reads
    await seeing.check_health()
    assert apart(before, await seeing.decide(job(images=[RED]))) == 0
