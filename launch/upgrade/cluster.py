"""The cluster of an upgrade, on Ray: the same calls to Serve's controller that `serve deploy` makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema

from autoscaling.policy.options import needs
from autoscaling.ray_internals.start import build_application, join
from launch.upgrade.plan import Deployment, UpgradeError, Version, overridden

NAMESPACE = "serve"
"""Of the actors of Serve."""
ANSWER_S = 10.0


class RayCluster:
    """The Ray that runs on this machine, or at `RAY_ADDRESS`. Raises UpgradeError where there is none."""

    def __init__(self, address: str = "auto") -> None:
        try:
            if not ray.is_initialized():
                join(address)
            self._client = _get_global_client(raise_if_no_controller_running=False)
        except ConnectionError as error:
            raise UpgradeError(f"no Ray runs here: run this on the head, or set RAY_ADDRESS ({error})") from None
        if self._client is None:
            raise UpgradeError("no Serve runs on this cluster; deploy the first graph with `serve deploy`")

    def applications(self) -> Mapping[str, Mapping[str, Any]]:
        """Serve's `ApplicationDetails` by name."""
        details: Mapping[str, Mapping[str, Any]] = self._client.get_serve_details()["applications"]
        return details

    def deploy(self, configs: list[dict[str, Any]]) -> None:
        """Makes these all the applications there are."""
        self._client.deploy_apps(ServeDeploySchema.model_validate({"applications": configs}))

    def calls(self, version: Version) -> int:
        """Calls under way in all replicas that run; a replica that does not answer has one."""
        refs = []
        for actor in (name for each in version.deployments for name in each.running):
            try:
                refs.append(ray.get_actor(actor, namespace=NAMESPACE).get_num_ongoing_requests.remote())
            except ValueError:  # gone since
                continue
        done, late = ray.wait(refs, num_returns=len(refs), timeout=ANSWER_S) if refs else ([], [])
        return len(late) + sum(_count(ref) for ref in done)

    def free(self) -> dict[str, float]:
        """Resources that nothing holds."""
        amounts: dict[str, float] = ray.available_resources()
        return amounts


def _count(ref: Any) -> int:
    try:
        return int(ray.get(ref))
    except ray.exceptions.RayError:  # gone since, and its calls with it
        return 0


def deployments_of(app: Mapping[str, Any]) -> list[Deployment]:
    """Deployments of an application of a config file, built here. Raises ProfileError where it cannot work."""
    from ray.serve._private.build_app import build_app

    built = build_app(build_application(app), name=app["name"])
    listed = []
    for each in built.deployments:
        bundles = each._replica_config.placement_group_bundles
        options = {"ray_actor_options": each.ray_actor_options, "placement_group_bundles": bundles}
        scaling = each._deployment_config.autoscaling_config
        least, target = (scaling.min_replicas, 0) if scaling else (each.num_replicas, each.num_replicas)
        listed.append(overridden(Deployment(each.name, needs(options), least, target), app))
    return listed
