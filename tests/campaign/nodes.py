"""Nodes: two machines, in network namespaces of this one, are parted and die while clients ask."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.campaign.machines import run_tests
from tests.campaign.record import Outcome, Sizes
from tests.cluster.nodes import allowed

PROMISE = "Nothing acknowledged is lost, and clients of a machine that is still up are answered."
FAULTS = "two machines parted for a moment; parted until one is given up; the head killed, then the other"
HELD_BY = "test_nodes_that_are_parted_lose_nothing_and_answer_again"


async def outcomes(seed: int, sizes: Sizes, place: Path) -> AsyncIterator[Outcome]:
    """The story of the two nodes, as `make test-all` has it; none without root or iproute2, nor in the short form."""
    if not allowed():
        print("nodes: left out, for want of root or iproute2", file=sys.stderr)
    elif sizes.has_nodes:
        lost = await run_tests("cluster/test_two_nodes.py", "-m", "cluster", f"--basetemp={place}")
        yield Outcome("nodes", FAULTS, PROMISE, 3, lost.total(), None, lost, HELD_BY)
