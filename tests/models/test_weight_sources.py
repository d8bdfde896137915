"""Downloads from an S3-compatible store and from a model hub, both served here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from models.weights.store import WeightsError, ensure
from tests.models.toy_weights import FILES, declare, digest, found, put


class Bucket(BaseHTTPRequestHandler):
    """As much of S3 as a download needs: GET with a range."""

    ranges: list[str]

    def do_GET(self) -> None:
        content = FILES[self.path.removeprefix("/bucket/models/toy/")]
        asked = self.headers.get("Range", "")
        type(self).ranges.append(f"{self.path.rpartition('/')[2]} {asked}")
        start = int(asked.removeprefix("bytes=").partition("-")[0] or 0)
        rest = content[start:]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(rest)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(rest)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def bucket(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Bucket]]:
    """A local S3 endpoint that serves FILES; declared as `toy`."""
    pytest.importorskip("obstore")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    declare(home, 'source = "s3:bucket/models/toy"', files=FILES)
    Bucket.ranges = []
    yield Bucket
    server.shutdown()
    server.server_close()


def test_weights_come_from_an_s3_store(bucket: type[Bucket]) -> None:
    assert found(ensure("toy")) == FILES


def test_a_broken_s3_download_goes_on_where_it_stopped(home: Path, bucket: type[Bucket]) -> None:
    half = FILES["model.safetensors"][:3000]
    put(home / "weights" / ".partial" / "toy" / "fetched", {"model.safetensors": half})
    assert found(ensure("toy")) == FILES
    assert "model.safetensors bytes=3000-" in bucket.ranges


def test_a_half_that_is_wrong_is_thrown_away(home: Path, bucket: type[Bucket]) -> None:
    put(home / "weights" / ".partial" / "toy" / "fetched", {"model.safetensors": b"x" * 3000})
    with pytest.raises(WeightsError, match="not the pinned file"):
        ensure("toy")
    assert found(ensure("toy")) == FILES


REVISION = "0123456789" * 4


class Hub(BaseHTTPRequestHandler):
    """As much of the model hub as a download needs: a listing of one revision, and its files with ranges."""

    asked: list[str]

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        status, content, headers = 200, b"{}", {"Content-Type": "application/json"}
        path = self.path.partition("?")[0]
        files = FILES | {"modeling_toy.py": b"raise SystemExit", "pytorch_model.bin": b"\x80\x02"}
        if path == f"/api/models/owner/toy/tree/{REVISION}":
            rows = [{"type": "file", "path": name, "size": len(files[name]), "oid": "0" * 40} for name in files]
            content = json.dumps(rows).encode()
        elif path.startswith(f"/owner/toy/resolve/{REVISION}/"):
            name = path.removeprefix(f"/owner/toy/resolve/{REVISION}/")
            type(self).asked.append(name)
            content, headers = files[name], {"ETag": f'"{digest(files[name])}"', "X-Repo-Commit": REVISION}
        else:
            status, headers = 404, {"X-Error-Code": "RevisionNotFound"}
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def hub() -> Iterator[str]:
    """Address of a local hub that has FILES, and two files that nobody should fetch, at REVISION."""
    Hub.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_only_pinned_files_of_a_pinned_revision_come_from_the_hub(home: Path, hub: str) -> None:
    declare(home, 'source = "hub:owner/toy"', f'revision = "{REVISION}"', files=FILES)
    command = [sys.executable, "-m", "launch", "weights", "fetch", "toy"]
    child = subprocess.run(command, env=os.environ | {"HF_ENDPOINT": hub}, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert found(home / "weights" / "toy") == FILES
    assert set(Hub.asked) == set(FILES)
    assert ensure("toy", offline=True) == home / "weights" / "toy"


def test_a_revision_that_the_hub_does_not_have_is_one_sentence(home: Path, hub: str) -> None:
    declare(home, 'source = "hub:owner/toy"', f'revision = "{"f" * 40}"', files=FILES)
    command = [sys.executable, "-m", "launch", "weights", "fetch", "toy"]
    child = subprocess.run(command, env=os.environ | {"HF_ENDPOINT": hub}, capture_output=True, text=True, check=False)
    assert child.returncode == 1
    assert child.stderr.splitlines()[-1].startswith("weights: ")
    assert not (home / "weights" / "toy").exists()
