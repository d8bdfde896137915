"""The request router of every engine: least busy replica first, and a refusal when all slots are taken.

`max_ongoing_requests` is enforced by the replica and counts over all ingress replicas, so "busy" is exact. Built on
`ray.serve.request_router`, a public alpha interface, plus one private call, which
tests/autoscaling/test_ray_internals.py holds on to: without `_remove_pending_request_from_indices` each refused request
would stay in the router for ever. Should an upgrade break it, `DeploymentHandle.choose_replica` with a time limit gives
the same answers from public parts, for one more round trip per call (docs/decisions/0006-router-view.md).

Ray pickles this module by value: nothing but the class belongs here; shared state is imported inside its methods.
"""

import asyncio
import random

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

PROBE_S = 0.2
"""Seconds that a replica which looks full may take to report how full it is."""


class EngineRouter(RequestRouter):
    """A `ReplicaView` and a router at once. `when_busy` is the stanza's."""

    def initialize_state(self, when_busy: str = "queue") -> None:
        """Enters this router as the view of its deployment. Called by Ray with `request_router_kwargs`."""
        from autoscaling import views

        self.when_busy = when_busy
        views.VIEWS[(self.app_name, self._deployment_id.name)] = self

    def running(self) -> int:
        """Replicas that can take requests now."""
        return len(self.curr_replicas)

    def slots(self) -> int:
        """Requests that the running replicas can work on at one time."""
        return sum(replica.max_ongoing_requests for replica in list(self.curr_replicas.values()))

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The least busy replicas that have a free slot; all of them where requests may queue."""
        if pending_request is not None:  # else Ray asks full replicas again without a pause
            pending_request.routing_context.should_backoff = True
        free = self.select_available_replicas(candidate_replicas)
        if not free and self.when_busy == "refuse" and pending_request is not None:
            free = await self._probe_free(candidate_replicas)
            if not free:
                self._refuse(pending_request)
                # The routing loop sees that the request is done and stops; it needs a candidate to get that far.
                return [candidate_replicas[:1]]
        random.shuffle(free)
        free.sort(key=lambda replica: self.replica_queue_len_cache.get(replica.replica_id) or 0)
        return [free[:2]] if free else [candidate_replicas]

    def on_send_request(self, replica_id: ReplicaID) -> None:
        """Reports to the caller that its wait for a slot is over. Called by Ray as a request goes out to a replica."""
        from autoscaling import views

        super().on_send_request(replica_id)
        # The task that routes was made by the call, so it runs in a copy of the caller's context.
        if sent := views.SENT.get():
            sent()

    async def _probe_free(self, replicas: list[RunningReplica]) -> list[RunningReplica]:
        """Asks replicas that look full once: the cache lags behind a slot that has just become free."""
        lengths = await asyncio.gather(
            *(replica.get_queue_len(deadline_s=PROBE_S) for replica in replicas), return_exceptions=True
        )
        known = [(r, n) for r, n in zip(replicas, lengths, strict=True) if isinstance(n, int)]
        for replica, length in known:
            self.on_new_queue_len_info(replica.replica_id, length)
        return [replica for replica, length in known if length < replica.max_ongoing_requests]

    def _refuse(self, pending_request: PendingRequest) -> None:
        from autoscaling import views

        if not pending_request.future.done():
            pending_request.future.set_exception(views.EngineBusy(self._deployment_id.name))
        self._remove_pending_request_from_indices(pending_request)
