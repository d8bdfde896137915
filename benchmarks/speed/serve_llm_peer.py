"""A program for the environment of ray.serve.llm: a model that answers at once, served twice on one cluster.

    python -m benchmarks.speed.serve_llm_peer PORT

/            Ray's default: HAProxy, an ingress replica, the replica of the engine
/direct      direct streaming: HAProxy asks a router replica, then sends the request to the replica of the engine

A variable of ray.serve.llm puts the engine in; all around it is its own. Direct streaming has the longer prefix,
because HAProxy asks its router about every path that begins with its prefix.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import ray
from ray import serve
from ray.llm._internal.serve.core.configs.openai_api_models import to_model_metadata
from ray.llm._internal.serve.core.engine.protocol import LLMEngine
from ray.serve import Application
from ray.serve.llm import LLMConfig, build_llm_deployment, build_openai_app
from ray.serve.llm.ingress import OpenAiIngress, make_fastapi_ingress
from ray.serve.llm.openai_api_models import ChatCompletionResponse
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import FrontendArgs
from vllm.entrypoints.openai.api_server import build_app

from benchmarks.speed.instant_engine import COMPLETION, EVENTS, MODEL, event

CPUS = 8
"""More than the machine has, so that Ray finds a place for every replica."""


class InstantEngine(LLMEngine):  # type: ignore[misc]
    """The answers of `benchmarks.speed.instant_engine`. Nothing of a request is looked at but whether it streams."""

    def __init__(self, llm_config: LLMConfig) -> None:
        self.openai_serving_chat = self

    async def start(self) -> None:
        """There is nothing to load."""

    def routing_stats(self) -> dict[str, Any]:
        return {}

    async def chat(self, request: Any, raw_request_info: Any = None) -> AsyncIterator[Any]:
        """Called by an ingress replica."""
        if not request.stream:
            yield ChatCompletionResponse.model_validate(COMPLETION)
            return
        async for line in stream():
            yield line

    async def create_chat_completion(self, request: Any, raw_request: Any) -> Any:
        """Called by vLLM's app."""
        return stream() if request.stream else ChatCompletionResponse.model_validate(COMPLETION)

    async def build_asgi_app(self) -> Any:
        arguments = SimpleNamespace(**vars(FrontendArgs()) | vars(AsyncEngineArgs(model=MODEL)))
        app = build_app(arguments, supported_tasks=("generate",))
        app.state.openai_serving_chat, app.state.log_stats = self, False
        return app

    async def resolve_lora(self, lora_model: Any) -> None:
        raise NotImplementedError

    async def completions(self, request: Any, raw_request_info: Any = None) -> AsyncIterator[Any]:
        raise NotImplementedError
        yield

    embeddings = transcriptions = completions

    async def reset_prefix_cache(self) -> None:
        """There is none."""


async def stream() -> AsyncIterator[str]:
    for index in range(EVENTS):
        yield event(index).decode()
        # As our engine that answers at once: events leave one at a time.
        await asyncio.sleep(0)
    yield "data: [DONE]\n\n"


def config() -> LLMConfig:
    return LLMConfig(
        model_loading_config={"model_id": MODEL},
        accelerator_config={"kind": "cpu"},
        deployment_config={"num_replicas": 1, "ray_actor_options": {"num_cpus": 1}},
    )


def through_ingress() -> Application:
    """The app of `build_openai_app` without direct streaming; with it on, that makes the other one only."""
    model, entry = config(), make_fastapi_ingress(OpenAiIngress)
    options = OpenAiIngress.get_deployment_options([model])
    return serve.deployment(entry, **options).bind(
        llm_deployments={MODEL: build_llm_deployment(model)}, model_cards={MODEL: to_model_metadata(MODEL, model)}
    )


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a process in the background is started without
    ray.init(address="local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    try:
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
        serve.run(build_openai_app({"llm_configs": [config()]}), name="direct", route_prefix="/direct")
        serve.run(through_ingress(), name="ingress", route_prefix="/")
        signal.pause()
    finally:
        serve.shutdown()  # HAProxy would outlive the cluster


if __name__ == "__main__":
    main()
