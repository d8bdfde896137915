"""Servers on real sockets that tests talk to: anything that answers, and providers that misbehave when told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar


@contextmanager
def served(handler: Any) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def send(self, status: int, data: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(data)))):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


class Provider(ThreadingHTTPServer):
    """Attributes: `seen` are all requests, as the handler notes them; `address` is the base of the API; `go_on` lets
    those answers go on that wait for it.
    """

    daemon_threads = True
    request_queue_size = 64
    handler: ClassVar[type[ProviderHandler]]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), self.handler)
        self.seen: list[Any] = []
        self.connections = 0
        self.go_on = threading.Event()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no news."""

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.go_on.set()
        self.shutdown()
        super().__exit__(kind, raised, trace)


BROKEN = (*(f"status:{status}" for status in (204, 400, 401, 500, 503)), "moved:", "cut:")
"""How a provider of any kind may behave that has failed."""


class ProviderHandler(Handler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Provider

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def behave(self, how: str, request: Any, detail: str) -> None:
        getattr(self, f"_{how}")(request, detail)

    def _status(self, request: Any, status: str) -> None:
        self.send(int(status.partition(":")[0]), b'{"message": "secret detail of the provider"}')

    def _limit(self, request: Any, _: str) -> None:
        self.send(429, b"{}", ("Retry-After", "17"))

    def _moved(self, request: Any, _: str) -> None:
        self.send(307, b"", ("Location", f"{self.server.address}{self.path.removeprefix('/v1')}"))

    def start_chunks(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
