"""Changes how many ingress replicas the graph of the campaign has, as an autoscaler would.

It reads numbers, one a line, and answers each with `done` once as many replicas run. It deploys the graph once more at
its start, because Serve lets a program set the number only where the application was deployed so.
"""

import sys

from ray import serve
from ray.serve._private.common import DeploymentID
from ray.serve.context import _get_global_client

from autoscaling.ray_internals.start import join
from tests.campaign.app import build
from tests.cluster.app import Args
from tests.waiting import eventually

NAME = "parlance"
WITHIN_S = 180


def scale(replicas: int) -> None:
    """Returns once `replicas` of the ingress run; those that are too many may still be draining."""
    controller = _get_global_client()._controller
    controller.update_deployment_replicas.remote(DeploymentID("ingress", NAME), replicas)

    def is_reached() -> bool:
        states = serve.status().applications[NAME].deployments["ingress"].replica_states
        return states.get("RUNNING", 0) == replicas and not states.get("STARTING", 0)

    eventually(is_reached, WITHIN_S, f"there are not {replicas} ingress replicas")


if __name__ == "__main__":
    join("auto")
    serve.run(build(Args(profile="embedded")), name=NAME, route_prefix="/", external_scaler_enabled=True)
    print("done", flush=True)
    for line in sys.stdin:
        scale(int(line))
        print("done", flush=True)
