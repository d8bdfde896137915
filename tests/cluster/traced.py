"""Puts a graph on the running cluster whose traces go to a collector and whose logs are JSON: one obedient engine.

python -m tests.cluster.traced up HOME COLLECTOR
python -m tests.cluster.traced down
"""

import sys

from ray import serve

from autoscaling.ray_internals.start import join
from contract.catalog import Catalog
from graph import wire
from tests.catalogs import chat
from tests.cluster.pair import SeparateArgs

NAME = "traced"


def up(home: str, collector: str) -> None:
    env = {
        "PARLANCE_HOME": home,
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "PARLANCE_LOG_FORMAT": "json",
        "PARLANCE_ACCESS_LOG": "1",
        "PARLANCE_PROXIES": "127.0.0.1",
    }
    actor = {"ray_actor_options": {"num_cpus": 0, "runtime_env": {"env_vars": env}}}
    engine = chat("obedient", max_ongoing_requests=100, deployment=actor)
    catalog = Catalog(profile="embedded", chat={"obedient": engine})
    serve.run(wire(catalog, SeparateArgs(cpus=0, env=env)), name=NAME, route_prefix=f"/{NAME}")


if __name__ == "__main__":
    join("auto")
    match sys.argv[1:]:
        case ["up", *arguments]:
            up(*arguments)
        case ["down"]:
            serve.delete(NAME)
