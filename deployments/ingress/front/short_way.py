"""A table of the routes that are asked most, beside FastAPI's own way to them.

FastAPI matches a path against each route, solves dependencies and opens exit stacks; for a route that needs one
admission that is more work than the admission is. `tests/api/test_matrix.py` holds both ways to the same answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from contract.errors import ApiError

Row = tuple[Callable[[Request], Awaitable[Any]], Callable[..., Awaitable[Response]], str]
"""The admission of a route, its endpoint, and the argument that takes what was admitted."""


class ShortWay:
    """Serves the routes that need of FastAPI nothing but an admission, without its way to them, which costs as much.

    Whatever the table lacks takes the long way: other methods and paths, and routes with parameters.

    Args:
        app: the long way.
        table: rows by method and path.
        tell: makes the reply of an error.
    """

    def __init__(
        self, app: ASGIApp, table: Mapping[tuple[str, str], Row], tell: Callable[[Request, ApiError], Response]
    ) -> None:
        self._app, self._table, self._tell = app, table, tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        # A server that starts or stops the app names neither method nor path.
        address = scope.get("method", ""), scope.get("path", "")
        row = None if scope.get("root_path") else self._table.get(address)
        if row is None:
            await self._app(scope, receive, send)
            return
        admission, endpoint, name = row
        request = Request(scope, receive, send)
        try:
            response = await endpoint(**{name: await admission(request)})
        except ApiError as error:
            response = self._tell(request, error)
        await response(scope, receive, send)
