"""Predicted waits. Demand is work: calls in the system times the seconds of a slot that each takes.

In the short run what waits is a fluid that all slots drain; a replica that starts adds its slots when it is loaded. In
the long run calls come at random, and an engine that has just enough slots on average makes them wait: Sakasegawa's
approximation of a queue with many servers (1977) says for how long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

AHEAD_S = 600.0
"""So far ahead calls are foreseen: what comes faster than all slots work waits too long by then."""


def backlog_wait_s(calls: float, running: int, lefts_s: Sequence[float], slots: int, service_s: float) -> float:
    """Returns the seconds for which the last of `calls` waits for a slot; infinite if no replica will run.

    `lefts_s` says of each replica that starts how long that still takes.
    """
    replicas, start_sum_s = running, 0.0
    ends_s = _ends_s(calls, replicas, start_sum_s, slots, service_s)
    for left_s in sorted(lefts_s):
        if left_s >= ends_s:
            break
        replicas, start_sum_s = replicas + 1, start_sum_s + left_s
        ends_s = max(left_s, _ends_s(calls, replicas, start_sum_s, slots, service_s))
    return ends_s


def _ends_s(calls: float, replicas: int, start_sum_s: float, slots: int, service_s: float) -> float:
    """Returns when that number of replicas, with starts of `start_sum_s` in all, have begun all calls."""
    if not replicas:
        return math.inf if calls > 0 else 0.0
    return max(0.0, (start_sum_s + (calls / slots - replicas) * service_s) / replicas)


def replicas_to_start(
    calls: float,
    rate: float,
    running: int,
    lefts_s: Sequence[float],
    slots: int,
    service_s: float,
    load_s: float,
    target_s: float,
) -> int:
    """Replicas to start now so that no call waits for longer than `target_s`, or than a start and half of it.

    That holds for the `calls` that are here, and for those that come in the AHEAD_S after them, `rate` a second. 0
    where all of them begin in time on what runs and starts.
    """
    first_s = target_s if load_s <= target_s else load_s + target_s / 2

    def rounds(end_s: float, left_s: float) -> float:
        """Calls that each slot of a replica begins until then."""
        return 1 + (end_s - left_s) / service_s if left_s <= end_s else 0.0

    def short(end_s: float) -> float:
        """Replicas that lack for all to have begun by then that came `target_s` before."""
        begun = running * rounds(end_s, 0.0) + sum(rounds(end_s, left_s) for left_s in lefts_s)
        return ((calls + rate * (end_s - first_s)) / slots - begun) / rounds(end_s, load_s)

    return max(0, math.ceil(max(short(first_s), short(first_s + AHEAD_S))))


def steady_wait_s(calls: float, slots: int, service_s: float) -> float:
    """The mean wait where on average `calls` are at work in `slots` slots. Infinite where they are too many."""
    use = calls / slots if slots else math.inf
    if use >= 1:
        return math.inf if calls else 0.0
    return float(service_s * use ** (math.sqrt(2 * (slots + 1)) - 1) / (slots * (1 - use)))
