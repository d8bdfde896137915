"""Traces that are made: their shapes follow what is published of public ones.

Gaps between requests are Gamma distributed with a shape below 1, answers have long tails, and few models get most
requests: so BurstGPT found of 10.3 million requests to Azure's GPT services (arXiv 2401.17644), and Aegaeon of a market
of models, of which 94 % got 1.35 % of the requests (SOSP 2025). The day follows office hours as the Azure LLM inference
trace of 2024 does (arXiv 2408.00741).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.capacity.traces import SimulatedTrace

GAP_SHAPE = 0.5
"""Of the Gamma distribution: its coefficient of variation is 1.4."""

TAIL = 1.0
"""The standard deviation of the logarithm of the work of a request."""

POPULARITY = 1.2
"""The n-th model gets n to the power of -POPULARITY."""

NIGHT = 0.15
"""Of the rate at the busiest hour, which is in the middle of the day."""

BURSTS = 10
FLOOD_SHARE = 0.9
"""Of all requests in the middle third are those of one organisation."""

FLOODER = 1
Floats = npt.NDArray[np.float64]


def _even(share: Floats) -> Floats:
    return np.ones_like(share)


def _day(share: Floats) -> Floats:
    """A night before and after one busy noon."""
    return NIGHT + (1 - NIGHT) * np.sin(np.pi * share) ** 4


def _burst(share: Floats) -> Floats:
    """Ten bursts, each a twentieth of a period long and forty times as dense."""
    return np.where((share * BURSTS) % 1 < 0.05, 40.0, 1.0)


def _flood(share: Floats) -> Floats:
    """Ten times as many in the middle third."""
    return np.where((share > 1 / 3) & (share < 2 / 3), 1 / (1 - FLOOD_SHARE), 1.0)


SHAPES: Mapping[str, Callable[[Floats], Floats]] = {"day": _day, "burst": _burst, "flood": _flood, "even": _even}


def trace(
    shape: str,
    engines: Sequence[str],
    requests: int,
    seconds: float,
    owners: int,
    work_s: float,
    seed: int,
    **more: Any,
) -> SimulatedTrace:
    """A trace of `shape`, one of SHAPES: `requests` in `seconds`, by `owners`, each of `work_s` on average."""
    draw = np.random.default_rng(seed)
    at_s = _times(SHAPES[shape], requests, draw) * seconds
    ranks = np.arange(1, len(engines) + 1, dtype=np.float64) ** -POPULARITY
    engine = draw.choice(len(engines), requests, p=ranks / ranks.sum()).astype(np.int16)
    owner = (draw.zipf(POPULARITY + 0.3, requests) % owners + 1).astype(np.int32)
    if shape == "flood":
        is_flood = (at_s > seconds / 3) & (at_s < 2 * seconds / 3) & (draw.random(requests) < FLOOD_SHARE)
        owner = np.where(is_flood, FLOODER, owner % max(1, owners - 1) + 2).astype(np.int32)
    work = draw.lognormal(np.log(work_s) - TAIL**2 / 2, TAIL, requests).astype(np.float32)
    return SimulatedTrace(tuple(engines), at_s, engine, owner, work, **more)


def _times(rate: Callable[[Floats], Floats], requests: int, draw: np.random.Generator) -> Floats:
    """Shares of the whole time at which requests come, ascending: closer where the rate is high."""
    gaps = draw.gamma(GAP_SHAPE, size=requests + 1)
    even = np.cumsum(gaps)[:-1] / gaps.sum()
    share = np.linspace(0, 1, 10_001)
    come = np.concatenate([[0.0], np.cumsum(rate((share[:-1] + share[1:]) / 2))])
    times: Floats = np.interp(even, come / come[-1], share)
    return times
