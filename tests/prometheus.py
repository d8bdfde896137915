"""The real Prometheus and its tool, which Debian's package `prometheus` has."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

START_S = 30


def program(name: str) -> str:
    """Its path. Where it is not installed the test is skipped, and fails in CI."""
    path = shutil.which(name)
    if path is None:
        reason = f"needs `{name}`: install the package prometheus"
        pytest.skip(reason)
    return path


@dataclass(frozen=True)
class Prometheus:
    """A server that scrapes."""

    url: str

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Series of an expression, as they are now."""
        return self._result("query", query=expression)

    def over(self, expression: str, start_s: float, end_s: float, step_s: float) -> list[dict[str, Any]]:
        """The same over a time."""
        return self._result("query_range", query=expression, start=start_s, end=end_s, step=step_s)

    def rules(self) -> list[dict[str, Any]]:
        """The rules of alerts, with what they have seen."""
        groups = self._get("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _result(self, path: str, **parameters: Any) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = self._get(path, **parameters)["result"]
        return result

    def _get(self, path: str, **parameters: Any) -> dict[str, Any]:
        reply = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=30)
        assert reply.status_code == 200, reply.text
        data: dict[str, Any] = reply.json()["data"]
        return data


@contextmanager
def running(config: Path, folder: Path, port: int) -> Iterator[Prometheus]:
    """A server with `config`, that keeps what it has in `folder`."""
    command = [program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    process = subprocess.Popen(command)
    url, end = f"http://127.0.0.1:{port}", time.monotonic() + START_S
    try:
        while not _is_ready(url):
            assert process.poll() is None, "Prometheus ended while it started"
            assert time.monotonic() < end, "Prometheus did not start"
            time.sleep(0.05)
        yield Prometheus(url)
    finally:
        process.terminate()
        process.wait(START_S)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", timeout=2).status_code == 200
    except httpx.TransportError:
        return False
