"""Reports of single requests, as the environment sets them: traces, lines of JSON, a line for each request.

Without these variables nothing is reported and nothing is imported for it.
"""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contract.errors import ApiError
from contract.telemetry import SPANS_LOST, Metric
from contract.tracing import CANCELLED, INFERENCE, NAMES, RequestNames

if TYPE_CHECKING:
    from autoscaling.tracing import Tracer

log = logging.getLogger(f"parlance.{__name__}")

ADDRESS_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables with the address for spans; the first that is set counts. All that begin with `OTEL_` are standard."""

HEADERS_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
"""They may hold a key of the collector."""

EXPORTER = "opentelemetry.exporter.otlp.proto.http"
EXPORTER_PACKAGE = "opentelemetry-exporter-otlp-proto-http"

FORMAT_VARIABLE = "PARLANCE_LOG_FORMAT"
FORMATS = ("text", "json")
ACCESS_VARIABLE = "PARLANCE_ACCESS_LOG"


@dataclass(frozen=True, slots=True)
class Observation:
    """Reports of single requests that this process makes.

    Attributes:
        tracer: recorder of spans; None if they are not wanted.
        has_json_logs: whether lines of the log are objects of JSON. Then engines know the ids of requests, too.
        has_access_log: whether each request is a line of the log.
    """

    tracer: Tracer | None = None
    has_json_logs: bool = False
    has_access_log: bool = False

    @property
    def is_on(self) -> bool:
        """Says if anything is reported."""
        return self.tracer is not None or self.has_json_logs or self.has_access_log

    @contextmanager
    def part_of(self, names: RequestNames, engine: str, method: str) -> Iterator[None]:
        """Makes the block known in logs and traces as a part of the request that `names` names: work of `engine`."""
        NAMES.set(names)
        tracer, parent = self.tracer, names.span
        if not (tracer and parent and parent.is_sampled):
            yield
            return
        attributes = {"parlance.engine": engine, "parlance.method": method}
        began_s = time.perf_counter()
        try:
            yield
        except BaseException as error:
            attributes["parlance.error"] = _error_name(error)
            raise
        finally:
            tracer.record(parent.child(), parent, INFERENCE, began_s, time.perf_counter(), attributes)

    @classmethod
    def of_environment(
        cls, environ: Mapping[str, str], role: str, send: Callable[[Metric, tuple[str, ...], float], None]
    ) -> Observation:
        """Reads the environment; `role` is that of the process, and `send` takes the number of lost spans."""
        tracer = open_tracer(environ, role, lambda count: send(SPANS_LOST, (), count))
        return cls(tracer, wants_json(environ), environ.get(ACCESS_VARIABLE) == "1")


def _error_name(error: BaseException) -> str:
    """A code or the name of a class. A client that leaves cancels, which is no `Exception`."""
    if isinstance(error, ApiError):
        return error.fault.code
    return type(error).__name__ if isinstance(error, Exception) else CANCELLED


def wants_json(environ: Mapping[str, str]) -> bool:
    """Says if lines of the log are to be objects of JSON."""
    return environ.get(FORMAT_VARIABLE) == "json"


def collector(environ: Mapping[str, str]) -> str | None:
    """The address that spans are sent to; None if none are wanted."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    return next((address for name in ADDRESS_VARIABLES if (address := environ.get(name, "").strip())), None)


def faults(environ: Mapping[str, str]) -> Iterator[str]:
    """Yields the reasons for which a process cannot report what its environment wants, one sentence each."""
    if (address := collector(environ)) and not address.startswith(("http://", "https://")):
        yield (
            f"spans are to be sent to `{address[:100]}`, which is no address of HTTP; set {ADDRESS_VARIABLES[1]} to "
            "one like `http://127.0.0.1:4318`, or unset it"
        )
    elif address and not _has_exporter():
        yield f"spans are to be sent to `{address[:100]}`, but the package `{EXPORTER_PACKAGE}` is missing; install it"
    if (wanted := environ.get(FORMAT_VARIABLE, "text")) not in FORMATS:
        yield f"{FORMAT_VARIABLE} is `{wanted[:100]}`; it must be `{FORMATS[0]}` or `{FORMATS[1]}`"
    if (wanted := environ.get(ACCESS_VARIABLE, "0")) not in ("0", "1"):
        yield f"{ACCESS_VARIABLE} is `{wanted[:100]}`; it must be `1` or `0`"


def _has_exporter() -> bool:
    try:
        return importlib.util.find_spec(EXPORTER) is not None
    except ModuleNotFoundError:
        return False


def open_tracer(environ: Mapping[str, str], role: str, lost: Callable[[int], None]) -> Tracer | None:
    """Returns the exporter of spans if the environment sets an address. An engine without the library has none."""
    if collector(environ) is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        from autoscaling.tracing import Tracer

        # Its lines may quote addresses and headers, at each try; ours say once that spans are lost.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        return Tracer(OTLPSpanExporter(), role, lost)
    except (ImportError, ValueError) as error:
        log.warning("no spans are sent by `%s`: %s", role, type(error).__name__)
        return None
