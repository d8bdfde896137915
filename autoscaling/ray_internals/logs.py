"""Log lines go where Serve's go, and every line names its request.

Serve configures a logger of its own in each replica, and no other: lines of a level below WARNING would be nowhere.
It keeps lines of a replica back until there are a thousand; here a warning takes all of them out at once.
"""

from __future__ import annotations

import logging
import logging.handlers
import sys
from collections.abc import Mapping
from typing import Any

from autoscaling.observation import wants_json
from contract.tracing import NAMES

OURS = "parlance"
SERVES = "ray.serve"

TO_STREAMS = "RAY_LOG_TO_STDERR"
"""Ray's own variable, for containers: with `1` its processes keep the standard streams that they are started with, and
write their logs to these. Our lines and Serve's go to standard output then. Serve's files are written too."""


def logging_config(environ: Mapping[str, str]) -> dict[str, Any]:
    """The option `logging_config` of a deployment."""
    return {"encoding": "JSON" if wants_json(environ) else "TEXT", "enable_access_log": True}


def join_serve_logs(environ: Mapping[str, str]) -> None:
    """Called in each replica's constructor. Does nothing where Serve has set up no log for this process."""
    serves, ours = logging.getLogger(SERVES), logging.getLogger(OURS)
    buffer = next((h for h in serves.handlers if isinstance(h, logging.handlers.MemoryHandler)), None)
    if buffer is None or buffer.target is None:
        return
    # vLLM sets up logging of its own, and so closes every handler. Serve asks this one for the name of its file when
    # the controller is started again, and stops a replica where it is closed.
    buffer.close = buffer.flush  # type: ignore[method-assign]
    buffer.flushLevel = logging.WARNING
    buffer.addFilter(_named if wants_json(environ) else _named_in_text)
    if environ.get(TO_STREAMS) == "1":
        stream = logging.StreamHandler(sys.__stdout__)
        stream.setFormatter(buffer.target.formatter)
        stream.filters = buffer.filters
        serves.addHandler(stream)
    ours.handlers, ours.propagate = serves.handlers, False
    ours.setLevel(logging.INFO)


def flush_logs() -> None:
    """Called every few seconds: a line is seen soon, also where few are written."""
    for handler in logging.getLogger(SERVES).handlers:
        handler.flush()


def _named(record: logging.LogRecord) -> bool:
    """Adds the ids of the request that a line is of."""
    if names := NAMES.get():
        record.request_id = names.request_id
        if names.span:
            record.trace_id = names.span.trace_id
    return True


def _named_in_text(record: logging.LogRecord) -> bool:
    """The same where a line of Serve's has one place for an id."""
    if names := NAMES.get():
        record.request_id = f"{names.request_id} {names.span.trace_id}" if names.span else names.request_id
    return True
