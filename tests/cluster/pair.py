"""Puts a second graph on the running cluster: two ingress replicas over PostgreSQL and Redis, one obedient engine.

python -m tests.cluster.pair up HOME DATABASE_URL REDIS_URL SECRET [VERSION]

Another VERSION replaces every replica of ingress and engine.

python -m tests.cluster.pair down
"""

import json
import sys
from typing import Any

from ray import serve

from autoscaling.ray_internals.start import join
from contract.catalog import Catalog
from deployments.ingress.deployment import IngressArgs
from graph import wire
from tests.catalogs import chat

NAME = "pair"
REPLICAS = 2


class SeparateArgs(IngressArgs):
    """An ingress with an environment of its own."""

    env: dict[str, str]

    def deployment_options(self) -> dict[str, Any]:
        options = super().deployment_options()
        options["ray_actor_options"] |= {"runtime_env": {"env_vars": self.env}}
        return options


def up(home: str, database_url: str, redis_url: str, secret: str, version: str = "1") -> None:
    env = {
        "PARLANCE_HOME": home,
        "PARLANCE_DATABASE_URL": database_url,
        "PARLANCE_REDIS_URL": redis_url,
        "PARLANCE_BLOBS_URL": f"file://{home}/bytes",
        "PARLANCE_SECRET": secret,
        "TEST_VERSION": version,
    }
    engine = chat("obedient", max_ongoing_requests=100, load_s=float(version))
    catalog = Catalog(profile="embedded", chat={"obedient": engine})
    ingress = SeparateArgs(replicas=REPLICAS, cpus=0, env=env, resume_within_s=60)
    serve.run(wire(catalog, ingress), name=NAME, route_prefix=f"/{NAME}")
    deployments = serve.status().applications[NAME].deployments
    assert deployments["ingress"].replica_states["RUNNING"] == REPLICAS, deployments
    print(json.dumps({name: each.replica_states.get("RUNNING", 0) for name, each in deployments.items()}))


if __name__ == "__main__":
    join("auto")
    command, *arguments = sys.argv[1:]
    if command == "up":
        up(*arguments)
    else:
        serve.delete(NAME)
