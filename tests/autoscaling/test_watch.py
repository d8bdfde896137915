"""What Serve's status says of a cold engine."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from ray.serve.exceptions import RayServeException

from autoscaling.watch import POLL_S, Start, StartWatch
from deployments.ingress.deployment import wake


def status(state: str, trigger: str = "REPLICA_STARTUP_FAILED", **replicas: int) -> SimpleNamespace:
    deployment = SimpleNamespace(status=state, status_trigger=trigger, replica_states=replicas)
    return SimpleNamespace(
        applications={"parlance": SimpleNamespace(status="RUNNING", deployments={"engine": deployment})}
    )


@pytest.mark.parametrize(
    ("answer", "start"),
    [
        (status("HEALTHY"), Start.COLD),
        (status("UPSCALING", STARTING=1), Start.STARTING),
        (status("UNHEALTHY"), Start.FAILED),
        (status("UNHEALTHY", "HEALTH_CHECK_FAILED", STARTING=1), Start.STARTING),
        (status("UNHEALTHY", "HEALTH_CHECK_FAILED"), Start.COLD),
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
    assert list(answers) == [], "it did not wait until the start had failed"
    assert set(slept) == {POLL_S}


def deployed(state: str) -> SimpleNamespace:
    return SimpleNamespace(applications={"parlance": SimpleNamespace(status=state, deployments={})})


@pytest.mark.parametrize("end", ["RUNNING", "DEPLOY_FAILED", "UNHEALTHY"])
async def test_waits_until_the_application_is_deployed(end: str) -> None:
    answers = iter([SimpleNamespace(applications={}), deployed("DEPLOYING"), deployed(end)])
    await StartWatch("parlance", lambda: next(answers), lambda _: asyncio.sleep(0)).until_deployed()
    assert list(answers) == [], "it did not wait until Serve was done"


async def test_engines_are_woken_once_the_application_is_deployed() -> None:
    woken: list[str] = []
    engine = SimpleNamespace(warm=lambda: woken.append("engine"))
    await wake([engine], StartWatch("parlance", ask=lambda: deployed("RUNNING")))
    assert woken == ["engine"]


async def test_a_controller_that_was_gone_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    woken: list[str] = []
    engine = SimpleNamespace(warm=lambda: woken.append("engine"))
    answers = iter([RayServeException("a secret of the inside"), deployed("RUNNING")])

    def ask() -> SimpleNamespace:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    await wake([engine], StartWatch("parlance", ask, lambda _: asyncio.sleep(0)))
    assert woken == ["engine"]
    assert "a secret of the inside" not in caplog.text


async def test_where_nothing_is_to_be_woken_serve_is_not_asked() -> None:
    await wake([], StartWatch("parlance", ask=lambda: pytest.fail("Serve was asked")))


async def test_one_poller_asks_serve_however_many_wait() -> None:
    rounds, starting = asyncio.Semaphore(0), status("UPSCALING", STARTING=1)
    answers = iter([starting, starting, status("UNHEALTHY")])

    async def sleep(_: float) -> None:
        await rounds.acquire()

    watch = StartWatch("parlance", lambda: next(answers), sleep)
    waiting = [asyncio.create_task(watch.until_failed("engine")) for _ in range(256)]
    for _ in range(2):
        rounds.release()
    await asyncio.gather(*waiting)
    assert list(answers) == []


async def test_nobody_is_asked_once_nobody_waits() -> None:
    asked = asyncio.Semaphore(0)

    async def sleep(_: float) -> None:
        asked.release()
        await asyncio.Event().wait()

    watch = StartWatch("parlance", lambda: status("UPSCALING", STARTING=1), sleep)
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
