"""Calls to engines from outside of the graph: waited for, awaited, or iterated, wherever Python runs.

    Handle       a model, and Serve's own handle to its replicas; those of each capability are kinds of it
    Call[T]      one answer: `.result()`, or `await`
    Stream[T]    an answer in parts: `for`, or `async for`; a call of it gives all parts

Each is on its way once it is made, so that many can be. Serve refuses to block where an event loop runs, as one does in
every notebook: what blocks waits in a thread there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ray.exceptions import RayTaskError
from ray.serve.handle import DeploymentHandle

from contract.catalog import Catalog, Model
from contract.errors import ApiError

M = TypeVar("M", bound=Model)
J = TypeVar("J")
T = TypeVar("T")
R = TypeVar("R")

_END: Any = object()
"""Value that `next` returns at the end of a stream."""


class Call(Generic[T]):
    """A call on its way, and how its answer is read."""

    def __init__(self, response: Any, read: Callable[[Any], T] = lambda answer: answer) -> None:
        self._response = response
        self._read = read

    def result(self) -> T:
        """Waits. Raises ApiError for what the engine refuses, and other failures as Ray reports them."""
        with _unwrapped():
            return self._read(_blocking(self._response.result))

    def then(self, read: Callable[[T], R]) -> Call[R]:
        """The same call with the result that `read` makes of its answer."""
        return Call(self._response, lambda answer: read(self._read(answer)))

    def __await__(self) -> Generator[Any, None, T]:
        return self._awaited().__await__()

    async def _awaited(self) -> T:
        with _unwrapped():
            return self._read(await self._response)


class Stream(Generic[T]):
    """An answer in parts, each once. Leaving the iteration early frees the engine. Raises as `Call.result`."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def __iter__(self) -> Iterator[T]:
        with _unwrapped(), self._left_early():
            while (part := _blocking(lambda: next(self._response, _END))) is not _END:
                yield part

    async def __aiter__(self) -> AsyncIterator[T]:
        with _unwrapped(), self._left_early():
            async for part in self._response:
                yield part

    def result(self) -> list[T]:
        """All parts. Waits."""
        return list(self)

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._awaited().__await__()

    async def _awaited(self) -> list[T]:
        return [part async for part in self]

    @contextmanager
    def _left_early(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # a generator that is left, too, raises inside
            self._response.cancel()
            raise


@dataclass(frozen=True, slots=True)
class Handle(Generic[M]):
    """A model of the catalogue `catalog`, and Serve's own handle to its replicas."""

    model: M
    handle: DeploymentHandle
    catalog: Catalog = field(repr=False)

    def _call(self, method: Callable[[Any, J], Awaitable[T]], job: J) -> Call[T]:
        """A call of `method` of the capability's protocol."""
        return Call(getattr(self.handle, method.__name__).remote(job))

    def _stream(self, method: Callable[[Any, J], AsyncIterator[T]], job: J) -> Stream[T]:
        return Stream(getattr(self.handle.options(stream=True), method.__name__).remote(job))


def _blocking(wait: Callable[[], T]) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return wait()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(wait).result()


@contextmanager
def _unwrapped() -> Iterator[None]:
    """An engine's own refusal comes as it was raised; over object references Ray wraps it."""
    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, ApiError):
            raise ApiError(*error.cause.args) from None
        raise
