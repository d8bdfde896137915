"""vLLM's engine core in a thread of this process, where vLLM would start two processes.

    ThreadedLLM (AsyncLLM)        everything but the way to the core is vLLM's
      `- ThreadedCore             one thread owns the core: it takes commands, steps, and hands outputs to the loop

On a CPU that saves two imports of torch and vLLM at every start and lets the model have all cores, because no second
process wants one. Commands and steps alternate in one thread, so the core needs no locks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.inputs import tokens_input
from vllm.platforms import current_platform
from vllm.pooling_params import PoolingParams
from vllm.renderers import renderer_from_config
from vllm.sampling_params import SamplingParams
from vllm.tasks import POOLING_TASKS
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core_client import InprocClient
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.engine.output_processor import OutputProcessor
from vllm.v1.executor import Executor
from vllm.v1.structured_output.backend_types import StructuredOutputOptions
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend

from concurrency.stalls import StallDetector
from models.llm.vllm_internals.cache import Commands, rest
from models.llm.vllm_internals.cpu import quick_steps, shorten
from models.llm.vllm_internals.int8 import int8_products, turn_inputs
from models.llm.vllm_internals.loading import map_embeddings, quick_core, quick_tokenizers
from models.llm.vllm_internals.steps import ThreadGovernor

log = logging.getLogger(f"parlance.{__name__}")

JOIN_S = 10.0
"""Seconds that a shutdown waits for the step in progress."""
HELD_S = 0.1  # at most, whoever holds a step
LOOK_UP_S = 0.02  # at most, for a grammar in vLLM's cache: a hundred times as long as it takes
STALL_S = (60.0, 300.0)
"""Seconds that a step or a command may always take, and at most. The longest of a healthy engine takes seconds."""


def unread(request: Any) -> int:
    """Tokens that the engine has not computed yet: 1 of a request that is being answered."""
    return int(request.num_tokens - request.num_computed_tokens)


def turn(owner: str | None, requests: Collection[Any]) -> int:
    """The place of the owner's next request beside `requests`, each of which has one; the lowest is read first.

    One of each owner in turn, as in start-time fair queueing (Goyal et al. 1996): after the owner's last that is still
    to be read, and not before what is under way, so that no owner waits for ever.
    """
    under_way = min((request.priority for request in requests), default=0)
    last = (request.priority + 1 for request in requests if request.cache_salt == owner and unread(request) > 1)
    return int(max([under_way, *last]))


def share(scheduler: Any) -> int:
    """Tokens of the next step that one prompt may take at most, so that another owner's first prompt starts at once.

    Max-min fair (Bertsekas and Gallager 1992, 6.5.2): what a short prompt leaves goes to the longer ones. 0 is no
    limit: the oldest takes the whole step, as in vLLM. One owner's prompts do so, as sharing would only delay them.
    """
    reading = [request for request in scheduler.running if unread(request) > 1]
    room: int = scheduler.max_num_scheduled_tokens - (len(scheduler.running) - len(reading))
    if scheduler.waiting and scheduler.waiting.peek_request().cache_salt not in {each.cache_salt for each in reading}:
        reading.append(scheduler.waiting.peek_request())
    if len({request.cache_salt for request in reading}) > 1:
        needs: list[int] = sorted(map(unread, reading))
        # What each of the others gets once the `place` shortest are served, rounded up: what is left of a step begins
        # one more prompt of the same owner. The largest of these is the fair share.
        return max(1, *(-((sum(needs[:place]) - room) // (len(needs) - place)) for place in range(len(needs))))
    return 0


class ThreadedCore(InprocClient):
    """vLLM's in-process client, owned by one thread, with the asynchronous methods that serving calls.

    Attributes:
        resources.engine_dead: set when the thread has died; `AsyncLLM` reads it.
        stalls: watches each step and each command.
    """

    engine_ranks_managed = (0,)
    layout_threads: int | None = None
    """Threads while weights are laid out: those of the first engine of a process.

    vLLM keeps oneDNN's products by the shape of the weights, for all engines together, and the layout of the weights
    depends on the threads: with others, an engine would multiply by weights that it takes for something else.
    """

    def __init__(self, vllm_config: VllmConfig, threads: int | None, quick: bool, rest_s: float | None) -> None:
        """Blocks until the model is loaded. Raises what the loading raised."""
        self.resources = SimpleNamespace(engine_dead=False)
        self.stalls = StallDetector(*STALL_S)
        self._commands = Commands(rest_s, lambda: rest(self.engine_core, self._pages))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._outputs: asyncio.Queue[EngineCoreOutputs | None] = asyncio.Queue()
        loaded: Future[None] = Future()
        arguments = (vllm_config, threads or torch.get_num_threads(), quick, loaded)
        self._thread = threading.Thread(target=self._run, args=arguments, name="engine-core", daemon=True)
        self._thread.start()
        loaded.result()

    def _run(self, vllm_config: VllmConfig, threads: int, quick: bool, loaded: Future[None]) -> None:
        try:
            # OpenMP counts threads per calling thread: what another thread sets is not seen here. And vLLM's CPU worker
            # replaces `torch.set_num_threads` by a warning, for the pinning of its own processes.
            ThreadedCore.layout_threads = ThreadedCore.layout_threads or threads
            torch._C.set_num_threads(ThreadedCore.layout_threads)
            quick = quick and vllm_config.model_config.enforce_eager and current_platform.is_cpu()
            with (
                quick_core() as self._pages,
                int8_products(vllm_config.model_config.dtype),
                quick_steps(vllm_config) if quick else nullcontext(),
            ):
                super().__init__(vllm_config, Executor.get_class(vllm_config), log_stats=False)
            for change in (turn_inputs, *((map_embeddings, shorten) if quick else ())):
                self.collective_rpc("apply_model", None, (partial(change, vllm_config),))
            self._governor = ThreadGovernor(threads, torch._C.set_num_threads)
        except BaseException as error:
            loaded.set_exception(error)
            return
        loaded.set_result(None)
        try:
            self._serve()
        except BaseException:
            log.exception("the engine core died")
        finally:
            self.resources.engine_dead = True
            self._publish(None)
            super().shutdown()

    def _serve(self) -> None:
        """Steps while there are requests, and takes commands between steps; returns at the command None."""
        scheduler = self.engine_core.scheduler
        while True:
            while not scheduler.has_requests() or not self._commands.empty():
                command = self._commands.next()
                if command is None:
                    return
                with self.stalls.watching():
                    command()
            # Some models read an image whole, for which a share might never be enough.
            if scheduler.scheduler_config.policy == "priority" and not scheduler.max_num_encoder_input_tokens:
                scheduler.scheduler_config.long_prefill_token_threshold = share(scheduler)
            with self.stalls.watching():
                outputs = self.get_output()
            self._governor.after_step()
            if outputs.outputs or outputs.scheduler_stats:
                self._publish(outputs)

    def _publish(self, outputs: EngineCoreOutputs | None) -> None:
        """Hands `outputs` to the loop; None means that no more will come."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._outputs.put_nowait, outputs)

    def _command(self, command: Callable[[], object]) -> None:
        if self.resources.engine_dead:
            raise EngineDeadError()
        self._commands.put(command)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No step begins inside, so what is added there begins together."""
        released = threading.Event()
        self._command(lambda: released.wait(HELD_S))
        try:
            yield
        finally:
            released.set()

    def compile_grammar(self, kind: str, spec: str) -> None:
        """Compiles a grammar for the request to come, beside steps: called in a thread of its own."""
        manager = self.engine_core.structured_output_manager
        if manager.backend is None:  # as vLLM makes it for the first request with a grammar
            config = manager.vllm_config
            manager.backend = XgrammarBackend(config, manager.tokenizer, config.model_config.get_vocab_size())
        manager.backend.compile_grammar(StructuredOutputOptions[kind], spec)

    def call(self, function: Callable[[], Any]) -> Any:
        result: Future[Any] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)

        self._command(run)
        return result.result()

    async def get_output_async(self) -> EngineCoreOutputs:
        """The next outputs; raises EngineDeadError once the thread has ended."""
        self._loop = asyncio.get_running_loop()
        is_over = self.resources.engine_dead and self._outputs.empty()
        if is_over or (outputs := await self._outputs.get()) is None:
            raise EngineDeadError()
        return outputs

    async def add_request_async(self, request: EngineCoreRequest) -> None:
        """Queues `request`; its outputs wait for `get_output_async`, even if the step is done before it first runs."""
        self._loop = asyncio.get_running_loop()
        self._command(lambda: self._add(request))

    def _add(self, request: EngineCoreRequest) -> None:
        try:
            request.priority = turn(request.cache_salt, self.engine_core.scheduler.requests.values())
            self.add_request(request)
            grammar = self.engine_core.scheduler.requests[request.request_id].structured_output_request
            if grammar and not grammar.is_grammar_ready:  # it is compiled, but would be noticed a step later
                wait([grammar._grammar], LOOK_UP_S)
        except Exception:
            # One request that cannot be prepared must not take the others down.
            log.exception("request %s could not be added", request.request_id)
            failed = EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.ERROR)
            self._publish(EngineCoreOutputs(outputs=[failed]))

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        """Frees what the requests occupy before the next step."""
        if request_ids and not self.resources.engine_dead:
            self._command(lambda: self.abort_requests(request_ids))

    def shutdown(self, timeout: float | None = None) -> None:
        """Ends the thread after the step in progress; unfinished requests get `EngineDeadError`. May be repeated."""
        if self._thread.is_alive():
            self._commands.put(None)
            self._thread.join(JOIN_S if timeout is None else timeout)


class ThreadedLLM(AsyncLLM):
    """`AsyncLLM` over a `ThreadedCore`. Its constructor stands in for vLLM's, which knows only cores in processes."""

    engine_core: ThreadedCore

    def __init__(self, vllm_config: VllmConfig, threads: int | None, quick: bool, rest_s: float | None) -> None:
        self.vllm_config = vllm_config
        self.model_config = vllm_config.model_config
        self.scheduler_config = vllm_config.scheduler_config
        self.observability_config = vllm_config.observability_config
        self.log_requests = self.log_stats = False
        with quick_tokenizers():
            self.renderer = renderer_from_config(vllm_config)
        self.input_processor = InputProcessor(vllm_config, self.renderer)
        self.output_processor = OutputProcessor(
            self.renderer.tokenizer, log_stats=False, stream_interval=self.scheduler_config.stream_interval
        )
        self.engine_core = ThreadedCore(vllm_config, threads, quick, rest_s)
        self.stalls = self.engine_core.stalls
        self.admission_stats = self.logger_manager = self.profiler = self.output_handler = None
        self._client_count = 1
        self._supported_tasks = self.engine_core.call(self.engine_core.get_supported_tasks)
        self._warm_up()

    def _warm_up(self) -> None:
        """One request through the whole engine, so that one that cannot compute fails here and not at a client."""
        params: SamplingParams | PoolingParams = SamplingParams(max_tokens=1, temperature=0)
        if "generate" not in self._supported_tasks:
            params = PoolingParams(task=next(task for task in self._supported_tasks if task in POOLING_TASKS))
        request = self.input_processor.process_inputs("warm-up", tokens_input([1] * 8), params, self._supported_tasks)
        core = self.engine_core

        def run() -> None:
            core.add_request(request)
            while core.engine_core.scheduler.has_requests():
                core.get_output()

        core.call(run)

    def __del__(self) -> None:
        """Nothing: the thread is a daemon, and vLLM's finalizer fails in an interpreter that is ending."""

    async def check_health(self) -> None:
        """Works as vLLM's; raises also where a step takes much longer than others did."""
        await super().check_health()
        self.stalls.check(f"the engine has work, but finished no step for {self.stalls.limit_s:.0f} s")
