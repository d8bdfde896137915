"""One fork server for all tests that leave it alive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fork_server.node import Node, running


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    with running("numpy", "torch", "no_such_module_at_all", GIVEN="by the plan") as node:
        assert node.reason(node.start()) == "no fork server is running yet"
        node.await_server()
        yield node
