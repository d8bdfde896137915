"""What Serve's status says of a cold engine."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from autoscaling.watch import Start, StartWatch

pytestmark = pytest.mark.anyio


def status(state: str, **replicas: int) -> SimpleNamespace:
    deployment = SimpleNamespace(status=state, replica_states=replicas)
    return SimpleNamespace(applications={"parlance": SimpleNamespace(deployments={"engine": deployment})})


@pytest.mark.parametrize(
    ("answer", "start"),
    [
        (status("HEALTHY"), Start.COLD),
        (status("UPSCALING", STARTING=1), Start.STARTING),
        (status("UNHEALTHY"), Start.FAILED),
        (status("DEPLOY_FAILED", STARTING=1), Start.FAILED),
        (SimpleNamespace(applications={}), Start.COLD),
    ],
)
async def test_status_is_read(answer: SimpleNamespace, start: Start) -> None:
    watch = StartWatch("parlance", ask=lambda: answer)
    await watch.refresh()
    assert watch["engine"] is start


async def test_waits_until_the_start_fails() -> None:
    answers = iter([status("UPSCALING", STARTING=1), status("UPSCALING", STARTING=1), status("UNHEALTHY")])
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    await StartWatch("parlance", lambda: next(answers), sleep).until_failed("engine")
    assert len(slept) in (2, 3)


async def test_one_poller_asks_serve_however_many_wait() -> None:
    asked, rounds = 0, asyncio.Semaphore(0)

    def ask() -> SimpleNamespace:
        nonlocal asked
        asked += 1
        return status("UNHEALTHY" if asked == 3 else "UPSCALING", STARTING=1)

    async def sleep(_: float) -> None:
        await rounds.acquire()

    watch = StartWatch("parlance", ask, sleep)
    waiting = [asyncio.create_task(watch.until_failed("engine")) for _ in range(256)]
    for _ in range(2):
        rounds.release()
    await asyncio.gather(*waiting)
    assert asked == 3


async def test_nobody_is_asked_once_nobody_waits() -> None:
    asked = asyncio.Semaphore(0)

    def ask() -> SimpleNamespace:
        return status("UPSCALING", STARTING=1)

    async def sleep(_: float) -> None:
        asked.release()
        await asyncio.Event().wait()

    watch = StartWatch("parlance", ask, sleep)
    for _ in range(2):  # a second herd has a poller of its own
        waiting = [asyncio.create_task(watch.until_failed("engine")) for _ in range(3)]
        await asked.acquire()
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert watch._poller is None


async def test_old_failure_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([status("UNHEALTHY"), status("UPSCALING", STARTING=1), status("UNHEALTHY")])
    monkeypatch.setattr("autoscaling.watch.POLL_S", 0.0)
    watch = StartWatch("parlance", lambda: next(answers), lambda _: asyncio.sleep(0))
    await watch.refresh()
    assert watch["engine"] is Start.FAILED
    monkeypatch.setattr("autoscaling.watch.POLL_S", 1.0)
    watch._asked_at_s -= 2
    await watch.until_failed("engine")
    assert next(answers, None) is None


async def test_controller_that_does_not_answer_changes_nothing() -> None:
    def answering() -> SimpleNamespace:
        if watch["engine"] is Start.STARTING:
            raise ConnectionError("the controller is gone")
        return status("UPSCALING", STARTING=1)

    watch = StartWatch("parlance", answering)
    await watch.refresh()
    await watch.refresh()
    assert watch["engine"] is Start.STARTING
