"""A stanza's terms, and the policy as an option of its deployment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat

from autoscaling.policy.facts import Terms
from contract.base import Frozen
from contract.catalog import Serving


class Scaling(Frozen):
    """Policy that sets the number of replicas of an engine.

    Attributes:
        by: `policy`, or `serve`: Serve's default, with `idle_s` as its delay. `dry-run`: Serve's default, and the
            policy logs its decisions in Serve's controller and in a metric.
        budget: limit for all engines by Ray resource; default: the resources of the cluster. Set it if an autoscaler
            can add nodes.
    """

    by: Literal["policy", "dry-run", "serve"] = "policy"
    budget: dict[str, NonNegativeFloat] = Field(default={})


BY_POLICY = Scaling()


def needs(options: Mapping[str, Any]) -> dict[str, float]:
    """Resources of one replica by Ray's names; of its whole placement group, if it has one."""
    actor = options.get("ray_actor_options") or {}
    alone = {"CPU": actor.get("num_cpus", 1), "GPU": actor.get("num_gpus", 0), "memory": actor.get("memory", 0)}
    total: Counter[str] = Counter()
    for bundle in options.get("placement_group_bundles") or [alone | (actor.get("resources") or {})]:
        total.update(bundle)
    return {name: need for name, need in total.items() if need}


def terms_of(serving: Serving, options: Mapping[str, Any], *, is_constant: bool = False) -> Terms:
    """Limits from a stanza. CPUs are no budget, since engines share them; a constant idle time learns nothing."""
    config = options["autoscaling_config"]
    idle_s = config["downscale_to_zero_delay_s"]
    return Terms(
        slots=serving.max_ongoing_requests,
        places=serving.max_queued,
        least=config["min_replicas"],
        most=config["max_replicas"],
        target_wait_s=serving.target_wait_s,
        load_s=serving.load_s,
        idle_s=idle_s,
        idle_least_s=idle_s if is_constant else min(idle_s, serving.idle_least_s),
        idle_most_s=idle_s if is_constant else serving.idle_most_s or idle_s,
        needs={name: need for name, need in needs(options).items() if name != "CPU"},
        warm=serving.warm,
    )


def policy_option(terms: Terms, scaling: Scaling) -> dict[str, Any]:
    """`policy` in `autoscaling_config`."""
    kwargs = {"terms": terms.written(), "budget": scaling.budget, "is_dry": scaling.by == "dry-run"}
    return {"policy_function": "autoscaling.policy.serve:EnginePolicy", "policy_kwargs": kwargs}
