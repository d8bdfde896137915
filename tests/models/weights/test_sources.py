"""Downloads from an S3-compatible store and from a model hub, both served here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.weights.store import WeightsError, ensure
from tests.models.serving import Handler, served
from tests.models.weights.hub import NEW, OLD, Hub
from tests.models.weights.toy import FILES, declare, found, put


class Bucket(Handler):
    """As much of S3 as a download needs: GET with a range."""

    ranges: list[str]

    def do_GET(self) -> None:
        content = FILES[self.path.removeprefix("/bucket/models/toy/")]
        asked = self.headers.get("Range", "")
        type(self).ranges.append(f"{self.path.rpartition('/')[2]} {asked}")
        start = int(asked.removeprefix("bytes=").partition("-")[0] or 0)
        part = ("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        date = ("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
        self.send(206, content[start:], part, ("ETag", '"1"'), date)


@pytest.fixture
def bucket(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Bucket]]:
    """A local S3 endpoint that serves FILES; declared as `toy`."""
    pytest.importorskip("obstore")
    declare(home, 'source = "s3:bucket/models/toy"', files=FILES)
    Bucket.ranges = []
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with served(Bucket) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        yield Bucket


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


def fetch_from(hub: Hub) -> subprocess.CompletedProcess[str]:
    """The command line fetches `toy`."""
    command = [sys.executable, "-m", "launch", "weights", "fetch", "toy"]
    environ = os.environ | {"HF_ENDPOINT": hub.address}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_only_pinned_files_of_a_pinned_revision_come_from_the_hub(home: Path, hub: Hub) -> None:
    """The hub has two further files."""
    hub.files |= FILES
    declare(home, 'source = "hub:owner/toy"', f'revision = "{OLD}"', files=FILES)
    child = fetch_from(hub)
    assert child.returncode == 0, child.stderr
    assert found(home / "weights" / "toy") == FILES
    assert set(hub.asked) == set(FILES)
    assert ensure("toy", offline=True) == home / "weights" / "toy"


def test_a_revision_that_the_hub_does_not_have_is_one_sentence(home: Path, hub: Hub) -> None:
    declare(home, 'source = "hub:owner/toy"', f'revision = "{NEW}"', files=FILES)
    child = fetch_from(hub)
    assert child.returncode == 1
    assert child.stderr.splitlines()[-1].startswith("weights: ")
    assert not (home / "weights" / "toy").exists()
