"""Ray's own LLM package on the weights of our chat, at zero until it is asked. A program that peers.py starts.

    python serve_llm_app.py NAME FOLDER PORT ENGINE        ENGINE is JSON: vLLM's arguments

Imports nothing of ours: it stands for what its documentation shows.
"""

from __future__ import annotations

import json
import signal
import sys

import ray
from ray import serve
from ray.serve.llm import LLMConfig, build_openai_app


def main() -> None:
    """Serves until it is interrupted."""
    name, folder, port, engine = sys.argv[1:]
    ray.init(num_cpus=8, include_dashboard=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
    config = LLMConfig(
        model_loading_config={"model_id": name, "model_source": folder},
        accelerator_config={"kind": "cpu"},
        placement_group_config={"bundles": [{"CPU": 1}]},
        deployment_config={"autoscaling_config": {"min_replicas": 0, "max_replicas": 1}},
        engine_kwargs=json.loads(engine),
    )
    serve.run(build_openai_app({"llm_configs": [config]}), blocking=False)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    ray.shutdown()


if __name__ == "__main__":
    main()
