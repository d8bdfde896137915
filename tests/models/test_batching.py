"""Order and grouping of calls in batches, callers that leave, bad items, and generators advanced in threads."""

import asyncio
import threading
from collections.abc import Generator, Iterator
from contextlib import aclosing

import pytest

from models.batching import TokenBatcher, calls_of
from models.stepping import GRACE_S, Stepper
from tests.waiting import cancelled


class Model:
    """Returns each item doubled, keeps what it was called with, and stands still while `gate` is closed."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)

    def __call__(self, items: list[str]) -> list[str]:
        self.calls.append(items)
        self.entered.release()
        assert self.gate.wait(10)
        if any("bad" in item for item in items):
            raise ValueError("a bad item")
        return [item * 2 for item in items]

    async def hold(self, batcher: TokenBatcher, owner: str = "") -> asyncio.Task:
        while self.entered.acquire(blocking=False):
            pass  # calls of before
        self.gate.clear()
        task = asyncio.ensure_future(batcher.submit(["hold"], owner))
        await asyncio.to_thread(self.entered.acquire)
        self.calls.clear()
        return task


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def batcher(model: Model) -> Iterator[TokenBatcher]:
    """A length is a number of characters; ten of them make a slice."""
    made = TokenBatcher(model, slice_tokens=10, call_tokens=3, name="test")
    yield made
    model.gate.set()
    made.close()


async def queued(batcher: TokenBatcher, *jobs: list[str]) -> list[asyncio.Task]:
    tasks = [asyncio.ensure_future(batcher.submit(job)) for job in jobs]
    await asyncio.sleep(0)
    return tasks


async def together(model: Model, batcher: TokenBatcher, *jobs: list[str]) -> list[list[str]]:
    held = await model.hold(batcher)
    tasks = await queued(batcher, *jobs)
    model.gate.set()
    await held
    return await asyncio.gather(*tasks)


async def test_callers_share_a_call_and_results_keep_the_order_of_the_items(
    model: Model, batcher: TokenBatcher
) -> None:
    assert await together(model, batcher, ["aa"], ["bb"], ["cc"]) == [["aaaa"], ["bbbb"], ["cccc"]]
    assert model.calls == [["aa", "bb", "cc"]]
    assert await batcher.submit(["ccc", "a", "bb", "dddddddd"]) == ["cccccc", "aa", "bbbb", "dddddddddddddddd"]
    assert await batcher.submit([]) == []


async def test_a_slice_ends_at_its_tokens_or_is_one_longer_item(model: Model, batcher: TokenBatcher) -> None:
    cases = ([["xx"] * 4], [4]), ([["xx"] * 5], [5]), ([["xx"] * 6], [5, 1]), ([["x" * 11], ["y"]], [1, 1])
    for jobs, calls in cases:
        await together(model, batcher, *jobs)
        assert [len(call) for call in model.calls] == calls, jobs


async def test_a_large_job_does_not_block_a_small_one(model: Model, batcher: TokenBatcher) -> None:
    held = await model.hold(batcher)
    large, small = await queued(batcher, ["xx"] * 2048, ["yy"])
    model.gate.set()
    await asyncio.gather(held, small)
    assert "yy" in model.calls[0]
    assert model.calls[0] != ["yy"]
    await large


async def test_a_large_job_is_not_starved_by_small_ones(model: Model, batcher: TokenBatcher) -> None:
    await together(model, batcher, *[["yy"]] * 6, ["xx"] * 3, *[["yy"]] * 40)
    first = next(number for number, call in enumerate(model.calls) if "xx" in call)
    assert first == 1  # seventh in the rotation, five to a slice
    assert sum(call.count("xx") for call in model.calls) == 3


async def test_lengths_that_differ_too_much_are_not_padded_together(model: Model, batcher: TokenBatcher) -> None:
    await together(model, batcher, ["xxxxxx"], ["y"], ["z"])
    assert model.calls == [["y", "z"], ["xxxxxx"]]
    lengths = [], [5], [1, 4], [1, 5], [2, 2, 3, 3], [1, 1, 1, 2], [1] * 4 + [2]
    assert [calls_of(list(one), 3) for one in lengths] == [[], [1], [2], [1, 1], [4], [4], [4, 1]]


async def test_a_bad_item_fails_its_own_caller_only(model: Model, batcher: TokenBatcher) -> None:
    held = await model.hold(batcher)
    good, bad, other = await queued(batcher, ["aaa"], ["bad"], ["ccc"])
    model.gate.set()
    assert await good == ["aaaaaa"]
    assert await other == ["cccccc"]
    with pytest.raises(ValueError, match="a bad item"):
        await bad
    await held
    assert await batcher.submit(["d"]) == ["dd"]


async def test_items_of_a_caller_that_has_gone_are_never_run(model: Model, batcher: TokenBatcher) -> None:
    held = await model.hold(batcher)
    gone, stays = await queued(batcher, ["xx"] * 20, ["yy"])
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    model.gate.set()
    assert await asyncio.gather(held, stays) == [["holdhold"], ["yyyy"]]
    assert model.calls == [["yy"]]
    assert await batcher.submit(["zz"]) == ["zzzz"]


async def test_a_caller_that_goes_while_its_slice_is_at_work_is_left_out() -> None:
    calls: list[list[str]] = []
    left = threading.Event()

    def run(items: list[str]) -> list[str]:
        calls.append(items)
        if items == ["y"]:
            loop.call_soon_threadsafe(goes.cancel)
            assert left.wait(10)
        return items

    loop = asyncio.get_running_loop()
    batcher = TokenBatcher(run, slice_tokens=10, call_tokens=3, name="test")
    stays = asyncio.ensure_future(batcher.submit(["y"]))
    goes = asyncio.ensure_future(batcher.submit(["xxxxxx"]))
    goes.add_done_callback(lambda _: left.set())
    with batcher._changed:  # nothing is taken until both have come
        await asyncio.sleep(0)
    assert await stays == ["y"]
    await asyncio.gather(goes, return_exceptions=True)
    await asyncio.to_thread(batcher.close)
    assert calls == [["y"]]


async def test_two_workers_share_one_job(model: Model) -> None:
    batcher = TokenBatcher(model, slice_tokens=100, call_tokens=1, workers=2, name="test")
    model.gate.clear()
    task = asyncio.ensure_future(batcher.submit(["xx"] * 8))
    for _ in range(2):
        await asyncio.to_thread(model.entered.acquire)
    assert sorted(map(len, model.calls)) == [2, 4]
    model.gate.set()
    assert await task == ["xxxx"] * 8
    batcher.close()


async def test_an_owner_who_sends_much_never_has_all_workers(model: Model, batcher: TokenBatcher) -> None:
    model.gate.clear()
    many = [asyncio.ensure_future(batcher.submit(["xx"] * 20, "much")) for _ in range(3)]
    await asyncio.to_thread(model.entered.acquire)
    other = asyncio.ensure_future(batcher.submit(["yy"], "little"))
    await asyncio.to_thread(model.entered.acquire)
    assert model.calls == [["xx"] * 5, ["yy"]]
    assert not model.entered.acquire(timeout=0.05)
    model.gate.set()
    assert await other == ["yyyy"]
    await asyncio.gather(*many)


async def test_while_others_come_an_owner_has_one_worker_less(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    batcher = TokenBatcher(model, slice_tokens=10, call_tokens=3, workers=2, name="test")
    assert await batcher.submit(["zz"], "little") == ["zzzz"]
    model.entered.acquire()
    model.gate.clear()
    many = asyncio.ensure_future(batcher.submit(["xx"] * 20, "much"))
    await asyncio.to_thread(model.entered.acquire)
    assert not model.entered.acquire(timeout=0.05)
    monkeypatch.setattr("models.batching.PRESENT_S", 0.0)  # the other one was here long ago
    more = asyncio.ensure_future(batcher.submit(["xx"], "much"))
    await asyncio.to_thread(model.entered.acquire)
    model.gate.set()
    await asyncio.gather(many, more)
    await asyncio.to_thread(batcher.close)


async def test_owners_take_turns_whatever_the_number_of_their_jobs(model: Model, batcher: TokenBatcher) -> None:
    held = [await model.hold(batcher, owner) for owner in "cd"]
    many = [asyncio.ensure_future(batcher.submit(["xx", "xx"], "a")) for _ in range(40)]
    few = asyncio.ensure_future(batcher.submit(["yy", "zz"], "b"))
    await asyncio.sleep(0)
    model.gate.set()
    await few
    last = next(number for number, call in enumerate(model.calls) if "zz" in call)
    assert sum(call.count("xx") for call in model.calls[:last]) <= 8  # two slices, and what a worker took meanwhile
    await asyncio.gather(*held, *many)


async def test_an_item_that_did_not_fit_is_first_in_the_next_slice(model: Model, batcher: TokenBatcher) -> None:
    held = [await model.hold(batcher, owner) for owner in "cd"]
    small = [asyncio.ensure_future(batcher.submit(["yy"] * 20, "a"))]
    long = asyncio.ensure_future(batcher.submit(["x" * 10], "b"))
    await asyncio.sleep(0)
    model.gate.set()
    await long
    assert model.calls.index(["x" * 10]) <= 2
    await asyncio.gather(*held, *small)


async def test_closing_fails_those_who_wait(model: Model) -> None:
    batcher = TokenBatcher(model, slice_tokens=10, call_tokens=3, name="test")
    held = await model.hold(batcher)
    with batcher._changed:  # the free worker sees the text and the end at the same time
        waiting = asyncio.ensure_future(batcher.submit(["aa"], "other"))
        await asyncio.sleep(0)
        batcher.is_closed = True
    batcher.check()
    model.gate.set()
    await asyncio.to_thread(batcher.close)
    assert await held == ["holdhold"]
    for late in (waiting, batcher.submit(["a"])):
        with pytest.raises(RuntimeError, match="closed"):
            await late
    with pytest.raises(RuntimeError, match="has died"):
        batcher.check()


async def test_a_call_that_does_not_end_is_unhealthy(model: Model, batcher: TokenBatcher) -> None:
    held = await model.hold(batcher)
    batcher.check()
    batcher.stalls.most_s = -1.0
    with pytest.raises(RuntimeError, match="longer"):
        batcher.check()
    model.gate.set()
    await held
    await batcher.submit(["a"])


@pytest.fixture
def stepper() -> Generator[Stepper]:
    stepper = Stepper(threads=2, deadline_s=5, name="toy")
    yield stepper
    stepper.close()


async def test_parts_come_in_order_from_other_threads_and_an_error_reaches_the_caller(stepper: Stepper) -> None:
    threads = set()

    def parts() -> Generator[int | None]:
        for number in (0, None, 2):
            threads.add(threading.get_ident())
            yield number
        raise ValueError("three")

    running = stepper.run(parts())
    assert [await anext(running) for _ in range(3)] == [0, None, 2]
    with pytest.raises(ValueError, match="three"):
        await anext(running)
    assert threading.get_ident() not in threads


async def test_who_leaves_stops_the_work_after_its_step(stepper: Stepper) -> None:
    closed, steps = threading.Event(), []

    def parts() -> Generator[int]:
        try:
            for number in range(100):
                steps.append(number)
                yield number
        finally:
            closed.set()

    async with aclosing(stepper.run(parts())) as running:
        async for _ in running:
            break
    assert await asyncio.to_thread(closed.wait, 10)
    assert steps == [0]


async def test_who_is_cancelled_within_a_step_stops_the_work_after_it(stepper: Stepper) -> None:
    begun, go, closed = threading.Event(), threading.Event(), threading.Event()

    def parts() -> Generator[int]:
        try:
            begun.set()
            go.wait(10)
            yield 1
            raise AssertionError("a step too many")
        finally:
            closed.set()

    task = asyncio.ensure_future(anext(stepper.run(parts())))
    await asyncio.to_thread(begun.wait, 10)
    assert await cancelled(task)
    async with asyncio.timeout(3):
        assert [part async for part in stepper.run(part for part in (2, 3))] == [2, 3]  # in the other of two threads
    assert not closed.is_set()
    go.set()
    assert await asyncio.to_thread(closed.wait, 10)


async def test_a_step_beyond_the_deadline_is_no_progress() -> None:
    stepper = Stepper(threads=1, deadline_s=-GRACE_S, name="toy")
    stepper.check()
    begun, go = threading.Event(), threading.Event()

    def parts() -> Generator[int]:
        begun.set()
        go.wait(10)
        yield 1

    running = stepper.run(parts())
    step = asyncio.ensure_future(anext(running))
    await asyncio.to_thread(begun.wait, 10)
    with pytest.raises(RuntimeError, match="toy makes no progress"):
        stepper.check()
    go.set()
    await step
    stepper.check()
    await running.aclose()
    stepper.close()
