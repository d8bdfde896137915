"""A collector of OTLP over HTTP on loopback, which holds the spans that it is sent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class SentSpan:
    """One span as it came. Ids are hexadecimal, times in seconds; `role` is that of the process."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began_s: float
    ended_s: float
    attributes: dict[str, Any]
    role: str

    @property
    def duration_s(self) -> float:
        return self.ended_s - self.began_s


@dataclass
class Collector:
    """What came, and how it answers.

    Attributes:
        status: of its answers.
        may_answer: cleared, it leaves whoever sends waiting.
    """

    spans: list[SentSpan] = field(default_factory=list)
    status: int = 200
    requests: int = 0
    may_answer: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    def take(self, body: bytes) -> None:
        message = ExportTraceServiceRequest.FromString(body)
        for resource in message.resource_spans:
            role = next(a.value.string_value for a in resource.resource.attributes if a.key == "parlance.role")
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                self.spans.append(
                    SentSpan(
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.start_time_unix_nano / 1e9,
                        span.end_time_unix_nano / 1e9,
                        {a.key: getattr(a.value, str(a.value.WhichOneof("value"))) for a in span.attributes},
                        role,
                    )
                )


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector at a port of its own."""
    collector = Collector()
    collector.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.requests += 1
            collector.may_answer.wait(30)
            if self.path == "/v1/traces" and collector.status == 200:
                collector.take(body)
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    collector.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        collector.may_answer.set()
        server.shutdown()
        serving.join()
        server.server_close()
