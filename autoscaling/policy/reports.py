"""Reports of replicas to Serve's controller (`Replica.record_autoscaling_stats`), read for the policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autoscaling.policy.facts import Facts

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext


KNOWN = 1000
"""Missing replicas for which the last counts are kept: more than come back."""


class Reader:
    """Reads the reports of one deployment: what is new in them since they were read last.

    Replicas count from their own beginning. So what they have counted before the first reading is not news, and one
    that is missing for a while, because Serve does not count it among those that run, is not new when it is back.

    Attributes:
        terms: the `Terms` of the deployment, as JSON.
        budget: amounts of resources, by name, that engines may take where these are not all that the cluster has.
    """

    def __init__(self, terms: Mapping[str, Any] | None = None, budget: Mapping[str, float] | None = None) -> None:
        self.terms, self.budget = terms or {}, budget or {}
        self._seen: dict[Any, tuple[float, float]] | None = None

    def facts(self, ctx: AutoscalingContext) -> Facts:
        """Reads what Serve knows of the deployment now, and the reports of its replicas."""
        latest = {
            name: {replica: points[-1].value for replica, points in of_replicas.items() if points}
            for name, of_replicas in (ctx.raw_metrics or {}).items()
        }
        ended, worked_s, loads_s = (latest.get(name, {}) for name in ("ended", "worked_s", "load_s"))
        now = {replica: (calls, worked_s[replica]) for replica, calls in ended.items()}
        before = now if self._seen is None else self._seen
        gone = [(replica, counts) for replica, counts in before.items() if replica not in now]
        self._seen = dict(gone[-KNOWN:]) | now
        earlier = [before[replica] for replica in now if replica in before]
        return Facts(
            running=ctx.current_num_replicas,
            target=ctx.target_num_replicas,
            calls=ctx.total_num_requests,
            ended=int(sum(calls for calls, _ in now.values()) - sum(calls for calls, _ in earlier)),
            worked_s=sum(work_s for _, work_s in now.values()) - sum(work_s for _, work_s in earlier),
            load_s=next((load_s for replica, load_s in loads_s.items() if replica not in before), None),
        )
