"""What uploads cost in memory, in a process that serves the app over a socket as Serve does."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from contract.limits import MIB
from tests.state.bucket import run_bucket

ROOT = Path(__file__).parent.parent.parent
AT_ONCE = 8
PIECE = bytes(MIB)


@dataclass(frozen=True)
class Server:
    """A process that serves."""

    process: subprocess.Popen[str]
    port: int
    key: str

    def memory(self, name: str) -> int:
        """`VmRSS`, what it occupies, or `VmHWM`, the most that it ever did, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) * 1024

    def upload(self, size_bytes: int) -> int:
        """The status of an upload whose length is not declared: it comes as fast as the socket takes it."""
        body = {"mime": "audio/wav", "size": size_bytes}
        headers = {"authorization": f"Bearer {self.key}"}
        reply = httpx.post(f"http://127.0.0.1:{self.port}/v1/audio/uploads", json=body, headers=headers)
        parts = urlsplit(reply.json()["upload_url"])
        pieces = (PIECE[: min(MIB, size_bytes - at)] for at in range(0, size_bytes, MIB))
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            target = f"{parts.path}?{parts.query}"
            connection.request("PUT", target, pieces, {"content-type": "audio/wav"}, encode_chunked=True)
            return connection.getresponse().status
        finally:
            connection.close()


@pytest.fixture(params=["folder", "s3"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    environment = os.environ | {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "OMP_NUM_THREADS": "1"}
    with run_bucket() as bucket:
        environment |= {"AWS_ENDPOINT_URL": bucket.url, "AWS_ALLOW_HTTP": "true"}
        environment |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
        command = [sys.executable, "-m", "tests.api.serving", str(tmp_path)]
        command += ["s3://store"] if request.param == "s3" else []
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            port, key = process.stdout.readline().split()
            yield Server(process, int(port), key)
            process.communicate(timeout=30)


@pytest.mark.parametrize("size_mib", [24, pytest.param(100, marks=pytest.mark.slow)])
def test_eight_uploads_at_once_do_not_grow_the_server_by_what_they_bring(server: Server, size_mib: int) -> None:
    assert server.upload(MIB) == 200
    before = server.memory("VmRSS")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert list(pool.map(server.upload, [size_mib * MIB] * AT_ONCE)) == [200] * AT_ONCE
    grown = server.memory("VmHWM") - before
    print(f"{AT_ONCE} uploads of {size_mib} MiB: {grown / MIB:.0f} MiB more")
    assert grown < 150 * MIB
