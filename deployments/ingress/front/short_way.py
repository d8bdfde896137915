"""A table of the routes that are asked most, beside FastAPI's own way to them.

FastAPI matches a path against each route, solves dependencies and opens exit stacks; for a route that needs one
admission that is more work than the admission is. `tests/api/test_matrix.py` holds both ways to the same answers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from contract.errors import ApiError
from deployments.ingress.front.admission import MARK


class ShortWay:
    """Serves the routes that need of FastAPI nothing but an admission, without its way to them, which costs as much.

    The table is made of the routes themselves. Whatever else comes takes the long way: other methods and paths, and
    routes with parameters. `tell` makes the reply of an error.
    """

    def __init__(
        self, app: ASGIApp, routes: Sequence[BaseRoute], tell: Callable[[Request, ApiError], Response]
    ) -> None:
        self._app = app
        self._tell = tell
        self._table = {
            (method, route.path): (dependency.call, route.endpoint, dependency.name)
            for route in routes
            if isinstance(route, APIRoute) and (dependency := only_admission(route))
            for method in route.methods
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        row = None if scope.get("root_path") else self._table.get((scope.get("method"), scope["path"]))
        if row is None:
            await self._app(scope, receive, send)
            return
        admission, endpoint, name = row
        request = Request(scope, receive, send)
        try:
            response: Response = await endpoint(**{name: await admission(request)})
        except ApiError as error:
            response = self._tell(request, error)
        await response(scope, receive, send)


def only_admission(route: APIRoute) -> Dependant | None:
    """The admission of a route that takes nothing else and makes its whole reply itself; None for other routes."""
    dependant = route.dependant
    takes_more = any(
        (
            *(dependant.path_params, dependant.query_params, dependant.header_params, dependant.cookie_params),
            *(dependant.body_params, dependant.request_param_name, dependant.response_param_name),
        )
    )
    returns = inspect.signature(route.endpoint, eval_str=True).return_annotation
    makes_reply = inspect.isclass(returns) and issubclass(returns, Response)
    if takes_more or not makes_reply or len(dependant.dependencies) != 1:
        return None
    (dependency,) = dependant.dependencies
    return dependency if hasattr(dependency.call, MARK) else None
