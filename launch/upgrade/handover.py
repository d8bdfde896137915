"""The steps of an upgrade, and those of a roll back. Where both stand is read from Serve, so each can go on later.

    one version                 deploy the next without a route         `deploy`
    two, the older has /        wait until the newer's ingress runs     `until_ready`
                                move / to the version that stays        `move`
    the one that stays has /    wait until the other has no call        `until_idle`
                                delete it                               `delete`

An upgrade keeps the newer version, a roll back the older one. Until `delete`, each can follow the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from launch.upgrade.plan import UpgradeError, Version, routed, successor, versions

LOOK_S = 1.0
START_S = 600.0
"""For the ingress of the new graph to start, a route to move, and a graph to go."""
QUIET_S = 10.0
"""Seconds without a call after which a graph is taken to be left: by then HAProxy of every node has its new list, and
clients have given up connections to the list before."""
DRAIN_S = 900.0
"""As long as the longest call."""


class UpgradeCluster(Protocol):
    """The Ray cluster of a graph."""

    def applications(self) -> Mapping[str, Mapping[str, Any]]:
        """Serve's `ApplicationDetails` by name."""

    def deploy(self, configs: list[dict[str, Any]]) -> None:
        """Makes these all the applications there are."""

    def calls(self, version: Version) -> int:
        """Calls under way in all replicas that run."""


class Handover:
    """Moves clients from one version of a graph to another.

    Args:
        base: the name of the application in the config file.
        route: prefix of the requests that move.

    Attributes:
        share: completed share of the step under way, from 0 to 1.
    """

    def __init__(
        self,
        cluster: UpgradeCluster,
        base: str,
        route: str = "/",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster, self._base, self._route = cluster, base, route
        self._clock, self._sleep = clock, sleep
        self.share = 0.0

    def versions(self) -> list[Version]:
        """Versions of the graph, oldest first."""
        return versions(self._cluster.applications(), self._base)

    def pair(self) -> tuple[Version, Version]:
        """The older and the newer version. Raises UpgradeError where there are not two."""
        there = self.versions()
        if len(there) != 2:
            raise UpgradeError("no upgrade is under way: there are no two versions of this graph")
        return there[0], there[1]

    def running(self) -> Version:
        """The only version, with the route. Raises UpgradeError."""
        there = self.versions()
        if not there:
            raise UpgradeError(f"no application `{self._base}` runs; deploy the first one with `serve deploy`")
        if len(there) > 1:
            raise UpgradeError("an upgrade is under way; `--resume` ends it, `--rollback` takes it back")
        (old,) = there
        if old.config is None:
            raise UpgradeError(
                f"`{old.name}` was not deployed from a config file (`make serve` and `serve run` do not), so it cannot "
                "be upgraded in place: stop it and start the new one"
            )
        if old.route != self._route:
            raise UpgradeError(f"`{old.name}` answers at {old.route}, and the config file wants {self._route}")
        return old

    def deploy(self, config: Mapping[str, Any]) -> None:
        """Deploys the next version, with all engines at zero and without a route."""
        old = self.running()
        apps = self._cluster.applications()
        self._cluster.deploy([*routed(apps, {}), successor(old, config)])

    def until_ready(self) -> None:
        """Returns once the newer version can answer. Raises UpgradeError, and takes it away, if it cannot."""
        end_s = self._clock() + START_S
        while True:
            old, new = self.pair()
            ingress = new.ingress
            self.share = len(ingress.running) / max(1, ingress.target) if ingress else 0.0
            if new.is_ready:
                return
            reason = new.failure or (f"its ingress is not ready after {START_S:.0f} s" if self._clock() > end_s else "")
            if reason:
                if old.route == self._route:
                    self.delete(new)
                    raise UpgradeError(
                        f"the new graph does not start, and is gone; the old one was never left: {reason}"
                    )
                raise UpgradeError(f"the new graph does not run; take it back with `--rollback`: {reason}")
            self._sleep(LOOK_S)

    def move(self, to: Version, away: Version) -> None:
        """Sends new requests to `to`, and returns once the proxies know. Requests in `away` continue there."""
        if to.route != self._route or away.route is not None:
            routes = {to.name: self._route, away.name: None}
            self._cluster.deploy(routed(self._cluster.applications(), routes))

        def has_moved() -> bool:
            now = self._of_name(to.name)
            return now is not None and now.route == self._route and now.is_ready

        self._wait(has_moved, f"`{to.name}` does not take {self._route}; see `serve status`")

    def until_idle(self, away: Version, within_s: float = DRAIN_S) -> int:
        """Returns once `away` has had no call for `QUIET_S`, or after `within_s`: the calls that are left."""
        began_s = quiet_since_s = self._clock()
        most = 1
        while True:
            there = self._of_name(away.name)
            calls = self._cluster.calls(there) if there else 0
            now_s = self._clock()
            if calls:
                quiet_since_s = now_s
            most = max(most, calls)
            self.share = 0.9 * (1 - calls / most) + 0.1 * min(1.0, (now_s - quiet_since_s) / QUIET_S)
            if now_s - quiet_since_s >= QUIET_S or now_s - began_s >= within_s:
                return calls
            self._sleep(LOOK_S)

    def delete(self, version: Version) -> None:
        """Takes a version away, and returns once Serve has begun: its replicas finish what they have."""
        apps = self._cluster.applications()
        self._cluster.deploy(routed({name: app for name, app in apps.items() if name != version.name}, {}))
        late = f"Serve does not delete `{version.name}`; see `serve status`"
        self._wait(lambda: self._of_name(version.name) is None, late)

    def _of_name(self, name: str) -> Version | None:
        return next((version for version in self.versions() if version.name == name), None)

    def _wait(self, is_done: Callable[[], bool], late: str) -> None:
        """Looks until it is done. Raises UpgradeError with the sentence `late` after START_S."""
        end_s = self._clock() + START_S
        while not is_done():
            if self._clock() > end_s:
                raise UpgradeError(late)
            self._sleep(LOOK_S)
