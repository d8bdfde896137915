"""One engine in virtual time: the real gates, queues, routers and policy of some ingress processes, before replicas
that load, work, hang and die in this process, and a controller whose news of them comes late.

    world         the engine, while a virtual loop runs
    AuditedQueue  the queue of each gate, which checks what `autoscaling.slots` promises with each slot handed out
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest import mock

from ray.exceptions import ActorDiedError
from ray.serve._private.common import DeploymentHandleSource, DeploymentID, RequestMetadata
from ray.serve._private.router import CurrentLoopRouter
from ray.serve.context import _get_serve_request_context
from ray.serve.request_router import PendingRequest

from autoscaling import views
from autoscaling.deployment import ROUTER_PAUSES
from autoscaling.engine import NOBODY
from autoscaling.gate import Gate
from autoscaling.policy import Facts, ScalingPolicy, Terms
from autoscaling.queue import SlotQueue
from autoscaling.router import EngineRouter
from autoscaling.slots import PRESENT_S, RESERVED_SHARE, Slot
from autoscaling.watch import StartWatch
from contract.catalog import Serving
from contract.tracing import Loading
from tests.autoscaling.replicas import NAME, WARM, Job, Replica, Response, Work


class AuditedQueue(SlotQueue):
    """The queue of a gate, that checks each slot which it hands out by what was promised."""

    def __init__(self, slots: Callable[[], int], max_waiting: int, **options: Any) -> None:
        super().__init__(slots, max_waiting, asyncio.get_running_loop().time, **options)
        self._visits_s: dict[Hashable, float] = {}

    def try_enter(self, owner: Hashable) -> Slot | None:
        lined_up = len(self._ready)
        if slot := super().try_enter(owner):
            assert not lined_up, "a newcomer has passed those that wait"
            self._check(owner)
        self._visits_s[owner] = self._clock()
        return slot

    def join(self, owner: Hashable, entry: Any) -> Any:
        self._visits_s[owner] = self._clock()
        return super().join(owner, entry)

    def seat(self, owner: Hashable, entry: Any) -> Slot:
        slot = super().seat(owner, entry)
        self._check(owner)
        return slot

    def release(self, slot: Slot) -> None:
        self._visits_s[slot.owner] = self._clock()
        super().release(slot)

    def leave(self, slot: Slot) -> None:
        super().leave(slot)
        assert self.next_turn() is None, "one waits beside a slot that is free for it"

    def _check(self, owner: Hashable) -> None:
        held, slots = self._at_work[owner] - 1, max(1, self._slots())
        assert self.at_work <= slots, "more calls are at work than there are slots"
        passed = [other for other in self._ready.lengths() if other != owner and self._at_work[other] < held]
        assert not passed, f"{owner} has {held} at work already and passes {passed}"
        if not self._reserves:
            return
        share = math.ceil(slots / self._sharers())
        reserve = max(1, share // RESERVED_SHARE) if slots > 1 else 0
        now_s, others = self._clock(), self._visits_s.keys() - {owner, NOBODY}
        if held >= reserve and any(now_s - self._visits_s[other] <= PRESENT_S for other in others):
            assert self.at_work <= share - reserve, f"{owner} has taken what is reserved for {others}"


class Metrics:
    """Counts of calls of one handle, which Serve's controller knows at once, and has to look at when it is asked to."""

    autoscaling_config = object()

    def __init__(self, look: Callable[[], None]) -> None:
        self.queued = 0

        async def looked(*_: Any) -> None:
            look()

        self._controller_handle = SimpleNamespace(run_control_loop_step=SimpleNamespace(remote=looked))

    def inc_num_queued_requests(self) -> None:
        self.queued += 1

    def dec_num_queued_requests(self) -> None:
        self.queued -= 1

    def _add_autoscaling_metrics_point(self) -> None: ...

    def push_autoscaling_metrics_to_controller(self) -> None: ...


class Ingress:
    """One ingress process: a handle, the real router behind it, and the real gate before it."""

    def __init__(self, world: World, number: int, watch: StartWatch) -> None:
        app = f"ingress-{number}"
        self.asked: list[str] = []
        self.world, self.metrics, self.version = world, Metrics(world.look), 0
        self.router = EngineRouter(
            DeploymentID(NAME, app),
            DeploymentHandleSource.REPLICA,
            use_replica_queue_len_cache=True,
            get_curr_time_s=asyncio.get_running_loop().time,
            **ROUTER_PAUSES,
        )
        self.router.initialize_state(world.serving.when_busy)
        self._router = CurrentLoopRouter.__new__(CurrentLoopRouter)
        self._router._asyncio_router = SimpleNamespace(_metrics_manager=self.metrics)
        with mock.patch("autoscaling.gate.SlotQueue", AuditedQueue):
            self.gate = Gate(NAME, app, world.serving, self, watch, lambda: len(world.ingresses))
        self.gate.forecast._draw = random.Random(number)

    def options(self, stream: bool, **_: str) -> Ingress:
        return self

    def __getattr__(self, method: str) -> Any:
        def remote(job: Job = WARM) -> Any:
            self.asked.append(method)
            return Response(self, job) if job is not WARM else self._warm()

        return SimpleNamespace(remote=remote)

    async def _warm(self) -> Loading:
        assert not _get_serve_request_context()._internal_request_id, "it would be cancelled with that request"
        work = await self.send(WARM)
        work.end(StopAsyncIteration())
        return Loading(0.0, self.world.loaded_s, 0.0, "import")

    async def send(self, job: Job) -> Work:
        """As Serve's router sends a call: again where its replica is full or was dead already."""
        name = f"{self.router.app_name}-{next(self.world.numbers)}"
        request, is_retry = PendingRequest([], {}, RequestMetadata(name, name)), False
        while True:
            self.metrics.queued += 1
            try:
                replica: Any = await self.router._choose_replica_for_request(request, is_retry=is_retry)
                self.router.on_send_request(replica.replica_id)
            finally:
                self.metrics.queued -= 1
            is_retry = True
            try:
                await replica.is_reached()
            except ActorDiedError:
                self.router.on_replica_actor_died(replica.replica_id)
                continue
            is_full = len(replica.calls) >= replica.max_ongoing_requests
            self.router.on_new_queue_len_info(replica.replica_id, len(replica.calls) + (not is_full))
            if not is_full:
                return Work(replica, job, self.router)

    def learn(self, version: int, replicas: list[Replica]) -> None:
        if version > self.version:
            self.version = version
            self.router.update_replicas(list(replicas))


class World:
    """The engine: Serve's controller, the replicas, and some ingress processes.

    Args:
        seed: of everything that is drawn.
        ingresses: processes with a gate.
        slots: of one replica.
        most: replicas.
        load_s: gives the seconds of the next start.
        serving: more of the stanza.

    Attributes:
        events: the last that happened, for one who looks for a fault.
        late_s: gives the seconds after which an ingress process hears of a change.
        fails: whether the start of a replica fails now.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        ingresses: int = 1,
        slots: int = 1,
        most: int = 1,
        least: int = 0,
        load_s: Callable[[], float] = lambda: 1.0,
        **serving: Any,
    ) -> None:
        self.draw = random.Random(seed)
        self.load_s, self.fails, self.is_away = load_s, False, False
        self.late_s: Callable[[], float] = lambda: 0.0
        self.serving = Serving(adapter="a.b:C", runtime="x", max_ongoing_requests=slots, **serving)
        idle_s = self.serving.idle_s
        terms = Terms(slots, least, most, load_s=self.serving.load_s, idle_s=idle_s, idle_most_s=idle_s)
        self._known: list[Replica] = []
        self.policy, self.version = ScalingPolicy({NAME: terms}), 0
        self.numbers, self.events = count(1), deque[str](maxlen=50)
        self.running: dict[Replica, None] = {}
        self.leaving: dict[Replica, None] = {}
        self.starting: dict[asyncio.Task[None], None] = {}
        self.target, self.loaded_s, self.has_failed = 0, 0.0, False
        watch = StartWatch("app", self._status)
        self.ingresses: list[Ingress] = []
        for number in range(ingresses):
            self.ingresses.append(Ingress(self, number, watch))
        self.control = asyncio.create_task(self._controls())

    @property
    def gate(self) -> Gate:
        """That of the first ingress process."""
        return self.ingresses[0].gate

    def note(self, event: str) -> None:
        self.events.append(f"{time.monotonic():9.3f} {event}")

    def run_replica(self) -> Replica:
        """A replica runs from now on, and is known."""
        self.running[replica := Replica(self.serving.max_ongoing_requests)] = None
        self.has_failed = False
        self.note(f"{replica.replica_id.unique_id} runs")
        self.tell()
        return replica

    def die(self, replica: Replica) -> None:
        """A replica dies. The controller notices it at its next look."""
        self.note(f"{replica.replica_id.unique_id} dies with {len(replica.calls)} calls")
        replica.die()

    def heal(self) -> None:
        """Nothing fails any more; what is dead is replaced."""
        self.note("all is healed")
        self.fails = self.is_away = False
        self.late_s = lambda: 0.0
        for replica in [*self.running, *self.leaving]:
            replica.goes_on.set()
        self.tell()

    def tell(self) -> None:
        """Each ingress process hears which replicas run, after a time of its own."""
        self.version += 1
        for ingress in self.ingresses:
            asyncio.get_running_loop().call_later(self.late_s(), ingress.learn, self.version, [*self.running])

    def look(self) -> None:
        """One step of the controller."""
        if self.is_away:
            return
        for replica in [*self.running, *self.leaving]:
            if replica.is_dead:
                self.running.pop(replica, None)
                self.leaving.pop(replica, None)
        for replica in [replica for replica in self.leaving if not replica.calls]:
            self.leaving.pop(replica)
            replica.die()
        calls = sum(ingress.metrics.queued for ingress in self.ingresses)
        calls += sum(len(replica.calls) for replica in self.running)
        facts = Facts(len(self.running), self.target, calls, *self._news())
        decision = self.policy.decide({NAME: facts}, {}, time.time())
        assert not self.policy.failures
        self.target = max(decision[NAME].replicas, int(calls > 0))
        while len(self.running) + len(self.starting) < self.target:
            self.starting[asyncio.create_task(self._start(self.load_s()))] = None
        while len(self.running) + len(self.starting) > self.target:
            if self.starting:
                self.starting.popitem()[0].cancel()
            else:
                least_busy = min(self.running, key=lambda replica: len(replica.calls))
                self.running.pop(least_busy)
                self.leaving[least_busy] = None
        if self._known != [*self.running]:
            self._known = [*self.running]
            self.note(f"{len(self._known)} replicas of {self.target} run")
            self.tell()

    def _news(self) -> tuple[int, float]:
        """Calls that have ended since the last look, and how long replicas worked on them."""
        replicas = [*self.running, *self.leaving]
        ended, worked_s = sum(one.ended for one in replicas), sum(one.worked_s for one in replicas)
        for replica in replicas:
            replica.ended, replica.worked_s = 0, 0.0
        return ended, worked_s

    def _status(self) -> Any:
        state = "UNHEALTHY" if self.has_failed and not self.running else "UPSCALING"
        deployment = SimpleNamespace(
            status=state, status_trigger="REPLICA_STARTUP_FAILED", replica_states={"STARTING": len(self.starting)}
        )
        return SimpleNamespace(applications={"app": SimpleNamespace(status="RUNNING", deployments={NAME: deployment})})

    async def _start(self, load_s: float) -> None:
        await asyncio.sleep(load_s)
        while self.fails:
            self.has_failed = True
            self.note("a start has failed")
            await asyncio.sleep(5.0)
        task = asyncio.current_task()
        assert task
        self.starting.pop(task, None)
        self.loaded_s = load_s
        self.run_replica()

    async def _controls(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.look()

    def census(self) -> dict[str, Any]:
        """Slots and tasks held for requests, of every ingress process and every replica; nothing is zero."""
        held: dict[str, Any] = {}
        for ingress in self.ingresses:
            gate, name = ingress.gate, ingress.router.app_name
            held[f"{name} slots"] = gate.queue.at_work
            held[f"{name} waiting"] = gate.queue.waiting + len(gate.queue._ready)
            held[f"{name} counted"] = ingress.metrics.queued
            held[f"{name} routed"] = len(ingress.router._pending_requests_by_id)
        for replica in (*self.running, *self.leaving):
            held[f"{replica.replica_id.unique_id} calls"] = len(replica.calls)
        return {name: number for name, number in held.items() if number}


@contextmanager
def world(seed: int = 0, **options: Any) -> Iterator[World]:
    """A world of its own, in a virtual loop that runs. What fails in it says the seed and what happened last."""
    before, serve_log = random.getstate(), logging.getLogger("ray.serve")
    random.seed(seed)
    serve_log.disabled = True
    one = World(seed, **options)
    try:
        yield one
    except AssertionError as failure:
        failure.add_note("\n".join((f"seed {seed}, last events:", *one.events)))
        raise
    finally:
        random.setstate(before)
        serve_log.disabled = False
        one.control.cancel()
        for ingress in one.ingresses:
            views.VIEWS.pop((ingress.router.app_name, NAME), None)
