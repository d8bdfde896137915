"""Serve's default policy at any time; Serve itself would look at the machine's clock."""

from __future__ import annotations

from typing import Any

from ray.serve import autoscaling_policy as serve
from ray.serve._private.common import DeploymentID
from ray.serve.config import AutoscalingConfig, AutoscalingContext


def default_decision(
    config: AutoscalingConfig, running: int, target: int, calls: float, now_s: float, state: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """Replicas that Serve aims at by its default policy, with its factors, delays and bounds, and its next state.

    `calls` are at work or wait; `now_s` is Unix time.
    """
    least, most = config.min_replicas, config.max_replicas
    name = DeploymentID("simulated", "simulated")
    seen: tuple[Any, ...] = (name, name.name, name.app_name, running, target, [], calls, 0.0, {}, {})
    ctx = AutoscalingContext(*seen, least, most, state, None, None, now_s, config)
    wanted, _ = serve.replica_queue_length_autoscaling_policy(ctx)
    if not running and calls:
        return max(least, min(most, int(wanted))), state
    replicas, state = serve._apply_delay_logic(
        max(0, serve._apply_scaling_factors(wanted, running, config)), target, config, state, _now=now_s
    )
    return max(least, min(most, replicas)), state
