"""Errors that a client gets when a call of a handle fails."""

from __future__ import annotations

import logging

from ray.exceptions import RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from autoscaling import views
from contract.errors import BUSY, ENGINE_FAILED, UPSTREAM_ERROR, ApiError, without_text

log = logging.getLogger(f"parlance.{__name__}")


def contract_error(error: Exception) -> ApiError:
    """The error of the contract for what a handle has raised: an engine's own refusal as it is.

    Anything else is a fixed text, and what really happened goes to the log.
    """
    if isinstance(error, views.EngineBusy | BackPressureError):
        return BUSY("all slots of this engine are in use; send the request again shortly")
    if isinstance(error, DeploymentUnavailableError):
        return ENGINE_FAILED()
    # Over object references Ray wraps what the replica raised; over gRPC it comes as it was raised.
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, ApiError):
        return ApiError(*cause.args)
    log.error("an engine failed during a call: %s", without_text(cause))
    return UPSTREAM_ERROR()
