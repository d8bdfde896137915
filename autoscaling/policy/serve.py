"""The policy as Ray Serve calls it, in its controller: in each of its looks, for one deployment after the other.

Where the policy cannot decide, Serve's default does, with the delays of the deployment; a metric counts these looks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ray.serve.autoscaling_policy import default_autoscaling_policy
from ray.serve.config import AutoscalingContext

AT_ONCE = {"upscale_delay_s": 0, "downscale_delay_s": 0, "downscale_to_zero_delay_s": 0}
"""Serve's delays for what was decided here. Those of the deployment are for its default."""

by_default: Callable[[AutoscalingContext], tuple[int | float, dict[str, Any]]] = default_autoscaling_policy
"""Serve's, of which Ray gives no type."""

log = logging.getLogger("ray.serve")


class EnginePolicy:
    """The policy of one deployment. Ray pickles this class by value; what deployments share is imported in its methods.

    Args:
        terms: its `Terms`, as JSON.
        budget: amounts of resources, by name, that engines may take where these are not all that the cluster has.
        is_dry: whether it only says what it would do.
    """

    def __init__(self, terms: Mapping[str, Any], budget: Mapping[str, float], is_dry: bool) -> None:
        self.is_dry = is_dry
        from autoscaling.policy.reports import Reader

        self.reader = Reader(terms, budget)
        self._told: object = None

    def __call__(self, ctx: AutoscalingContext) -> tuple[int | float, dict[str, Any]]:
        """Replicas of the deployment from now on."""
        try:
            from autoscaling.policy.shared import SHARED

            decision = SHARED.decide(self.reader, ctx)
        except Exception as error:
            self._fail(ctx, error)
            return by_default(ctx)
        if decision.replicas != ctx.target_num_replicas:
            would = "would have" if self.is_dry else "has"
            self._tell(f"{ctx.deployment_name} {would} {decision.replicas} replicas: {decision.why}")
        if self.is_dry:
            return by_default(ctx)
        ctx.config = ctx.config.model_copy(update=AT_ONCE)
        return decision.replicas, {}

    def _fail(self, ctx: AutoscalingContext, error: Exception) -> None:
        if self._tell(f"{ctx.deployment_name} is scaled by Serve's default, because its policy failed: {error!r}"):
            log.exception("the policy of %s failed", ctx.deployment_name)
        from autoscaling.policy.shared import SHARED

        SHARED.count_failure(ctx.deployment_name)

    def _tell(self, sentence: str) -> bool:
        """Logs what was not the last that was said. Returns whether it was news."""
        is_news, self._told = sentence != self._told, sentence
        if is_news:
            log.info("scaling: %s", sentence)
        return is_news
