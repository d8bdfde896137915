"""A decision scorer replica. Spec 4 (decision engine)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ray import serve
from ray.serve.handle import DeploymentHandle

from autoscaling.engine import CallContext
from autoscaling.gate import Gate
from autoscaling.watch import StartWatch
from contract.catalog import ChatModel, DecisionModel
from contract.chat.engine import ChatEngine
from contract.chat.reads import ReadJob, ReadReply
from contract.decisions.engine import DecisionEngine, DecisionJob, Measurement, Readings
from contract.decisions.presets import Preset
from deployments.replica import Replica


@serve.deployment
class Scorer(Replica[DecisionEngine]):
    """One decision model of the catalogue. Its methods are those of `DecisionEngine`.

    The constructor ends when the runtime is measured. `through` and `handle` are of the chat model that it reads
    through, where it has no engine of its own.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        model: DecisionModel,
        presets: Sequence[Preset],
        through: ChatModel | None = None,
        handle: DeploymentHandle | None = None,
    ) -> None:
        super().__init__(model)
        if through is not None and handle is not None:
            app_name = serve.get_replica_context().app_name
            self._adapter.read_with(reader(model, through, app_name, handle, StartWatch(app_name)))
        await self._adapter.measure(presets)

    async def decide(self, job: DecisionJob) -> Readings:
        return await self.engine.decide(job)

    async def measured(self, job: None = None) -> Measurement | None:
        return await self.engine.measured(job)


MANNERS = ("when_cold", "wait_s", "max_queued", "deadline_s")
"""Of a scorer's serving table, what holds on its way to a chat model; the size there is the chat model's."""


def reader(
    model: DecisionModel, through: ChatModel, app_name: str, handle: DeploymentHandle, watch: StartWatch
) -> Callable[[ReadJob], Awaitable[ReadReply]]:
    """The way from a scorer to a chat model: cold, busy, late and dead are there what they are at every gate.

    Its room is one beside those of the ingress: while several organisations read, it hands out half of the slots. That
    is not counted there, because a read is one step of the model and gives its slot back at once.
    It raises ApiError only.
    """
    assert model.serving
    assert through.serving
    serving = through.serving.model_copy(update={name: getattr(model.serving, name) for name in MANNERS})
    gate = Gate(through.deployment, app_name, serving, handle, watch, sharers=lambda: 2)

    async def read(job: ReadJob) -> ReadReply:
        return await gate.call(ChatEngine.read, job, context=CallContext(job.owner))

    return read
