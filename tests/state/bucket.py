"""As much of S3 as bytes need: whole and multipart PUT, GET, HEAD, listing, DELETE of many, over objects in memory."""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, unquote, urlsplit

SLOW_S = 2.0
"""Pause of a slow store amid an answer."""


class Bucket(ThreadingHTTPServer):
    """A local endpoint.

    Attributes:
        objects: by path, bucket included.
        parts: of uploads that are not complete.
        numbers: of the next uploads.
        fault: the way in which it fails: `refuses` everything with 500, `stores` bytes and answers 503 all the same,
            `cuts` reads off in the middle, is `slow` in the middle of reads.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.numbers = count()
        self.fault = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """The settings of its clients."""
        keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true", **keys}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def _handle(self) -> None:
        body = self._body()
        parts = urlsplit(self.path)
        query, name = parse_qs(parts.query, keep_blank_values=True), unquote(parts.path).lstrip("/")
        if self.server.fault == "refuses":
            self._answer(500)
        elif self.command == "PUT":
            self._put(name, query, body)
        elif self.command == "POST":
            self._post(name, query, body)
        elif self.command == "DELETE":
            self.server.parts.pop(query.get("uploadId", [""])[0], None)
            self._answer(204)
        elif "list-type" in query:
            self._answer(200, self._listed(name.strip("/"), query.get("prefix", [""])[0]))
        elif name in self.server.objects:
            self._answer(200, self.server.objects[name])
        else:
            self._answer(404)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _put(self, name: str, query: dict[str, list[str]], body: bytes) -> None:
        if "partNumber" in query:
            self.server.parts[query["uploadId"][0]][int(query["partNumber"][0])] = body
        else:
            self.server.objects[name] = body
        self._answer(200)

    def _post(self, name: str, query: dict[str, list[str]], body: bytes) -> None:
        if "uploads" in query:
            upload = f"u{next(self.server.numbers)}"
            self.server.parts[upload] = {}
            answer = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        elif "uploadId" in query:
            parts = self.server.parts.pop(query["uploadId"][0])
            self.server.objects[name] = b"".join(parts[number] for number in sorted(parts))
            answer = "<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>"
        else:
            bucket = name.partition("/")[0]
            keys = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for key in keys:
                self.server.objects.pop(f"{bucket}/{key}", None)
            deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            answer = f"<DeleteResult>{deleted}</DeleteResult>"
        self._answer(200, answer.encode())

    def _listed(self, bucket: str, prefix: str) -> bytes:
        keys = [
            name.removeprefix(f"{bucket}/") for name in self.server.objects if name.startswith(f"{bucket}/{prefix}")
        ]
        entries = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(self.server.objects[f'{bucket}/{key}'])}</Size>"
            "<LastModified>2025-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, status: int, content: bytes = b"") -> None:
        fault, half = self.server.fault, len(content) // 2
        if fault == "stores" and self.command in ("PUT", "POST"):
            status, content = 503, b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(content[:half])
        if fault == "cuts":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        time.sleep(SLOW_S if fault == "slow" and content else 0)
        with suppress(ConnectionError):  # a client need not wait
            self.wfile.write(content[half:])

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def run_bucket() -> Iterator[Bucket]:
    with Bucket() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
