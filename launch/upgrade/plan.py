"""Versions of a graph among Serve's applications, and the plan of an upgrade. Plain data, without Ray."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from autoscaling.policy.options import needs
from launch.environment import StartError

INGRESS = "ingress"
"""Name of the deployment that answers clients."""

FAILED = {"DEPLOY_FAILED", "UNHEALTHY"}
"""Values of Serve's `ApplicationStatus` and `DeploymentStatus`."""


class UpgradeError(StartError):
    """An upgrade that cannot go on; the sentence says what to do."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """An engine or the ingress.

    Attributes:
        needs: resources of one replica by Ray's names.
        least: replicas that never go.
        target: replicas that Serve wants.
        running: names of the actors of replicas that run.
        is_failed: its replicas keep failing.
    """

    name: str
    needs: Mapping[str, float]
    least: int = 0
    target: int = 0
    running: tuple[str, ...] = ()
    is_failed: bool = False

    @classmethod
    def read(cls, name: str, details: Mapping[str, Any]) -> Deployment:
        """Reads `DeploymentDetails` of Serve."""
        options = details["deployment_config"]
        scaling = options.get("autoscaling_config")
        running = (replica["actor_name"] for replica in details["replicas"] if replica["state"] == "RUNNING")
        least = scaling.get("min_replicas", 1) if scaling else details["target_num_replicas"]
        is_failed = details["status"] in FAILED
        return cls(name, needs(options), least, details["target_num_replicas"], tuple(running), is_failed)

    @property
    def cards(self) -> dict[str, float]:
        """Accelerators of one replica: GPUs and resources that an operator has named."""
        return {name: need for name, need in self.needs.items() if name not in ("CPU", "memory") and need}


@dataclass(frozen=True, slots=True)
class Version:
    """One of the applications that are versions of the same graph.

    Attributes:
        number: 1 for the application with the name in the config file, 2 for that name with `-2`, and so on.
        route: prefix of the requests that the proxy sends to it; None: none.
        config: as it was deployed; None where it was not deployed from a config file.
    """

    name: str
    number: int
    route: str | None
    config: dict[str, Any] | None
    status: str
    message: str
    deployments: tuple[Deployment, ...]

    @property
    def ingress(self) -> Deployment | None:
        """The deployment that answers clients; None until the graph was built."""
        return next((each for each in self.deployments if each.name == INGRESS), None)

    @property
    def is_ready(self) -> bool:
        """Says if every ingress replica runs."""
        return self.ingress is not None and 0 < self.ingress.target <= len(self.ingress.running)

    @property
    def failure(self) -> str | None:
        """The reason why it will not be ready. An engine that fails is not one: its gate answers for it."""
        has_failed = self.ingress.is_failed if self.ingress else self.status in FAILED
        return (self.message or "its ingress does not start") if has_failed else None

    def reserved(self) -> Counter[str]:
        """Accelerators that its replicas hold."""
        return total(self.deployments)


def total(deployments: Sequence[Deployment]) -> Counter[str]:
    """Accelerators of all replicas that run."""
    amount = Counter[str]()
    for each in deployments:
        amount.update({name: need * len(each.running) for name, need in each.cards.items() if each.running})
    return amount


def versions(applications: Mapping[str, Mapping[str, Any]], base: str) -> list[Version]:
    """The versions of the graph `base` among Serve's applications, oldest first."""
    there = []
    for name, details in applications.items():
        match = re.fullmatch(rf"{re.escape(base)}(?:-([0-9]+))?", name)
        if match and details["status"] != "DELETING":
            deployments = (Deployment.read(each, of) for each, of in details["deployments"].items())
            there.append(
                Version(
                    name,
                    int(match[1] or 1),
                    details.get("route_prefix"),
                    details.get("deployed_app_config"),
                    details["status"],
                    details["message"],
                    tuple(deployments),
                )
            )
    return sorted(there, key=lambda version: version.number)


def successor(old: Version, config: Mapping[str, Any]) -> dict[str, Any]:
    """The application of a config file as the version after `old`: without a route, and without engines that it wakes.

    Its ingress would wait for engines on cards that the old graph holds.
    """
    app = deepcopy(dict(config))
    base = app["name"]
    app |= {"name": f"{base}-{old.number + 1}", "route_prefix": None}
    ingress = app.get("args", {}).get("ingress")
    if ingress:
        for key in ("warm", "resume_within_s"):
            ingress.pop(key, None)
    return app


def routed(applications: Mapping[str, Mapping[str, Any]], routes: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """Configs of all applications, some with another route: Serve deletes those that are not deployed again."""
    configs = []
    for name, details in applications.items():
        config = details.get("deployed_app_config")
        if config is not None and details["status"] != "DELETING":
            configs.append(dict(config) | ({"route_prefix": routes[name]} if name in routes else {}))
    return configs


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """Needs and effects of an upgrade.

    Attributes:
        engines: of the new graph, without its ingress.
        ingress: of the new graph; `target` says how many replicas.
        free: resources of the cluster that nothing holds, by Ray's names.
    """

    old: Version
    name: str
    engines: tuple[Deployment, ...]
    ingress: Deployment
    free: Mapping[str, float]

    def peak(self) -> dict[str, float]:
        """Accelerators that both graphs hold at most: new engines take what is free, and what old ones leave."""
        peak: dict[str, float] = dict(self.old.reserved())
        for name in {name for each in self.engines for name in each.cards}:
            wanted = sum(each.cards.get(name, 0.0) for each in self.engines)
            peak[name] = peak.get(name, 0.0) + min(self.free.get(name, 0.0), wanted)
        return peak

    def faults(self) -> Iterator[str]:
        """Reasons why the second ingress finds no place."""
        for name, need in sorted(self.ingress.needs.items()):
            wanted, there_is = need * self.ingress.target, self.free.get(name, 0.0)
            if wanted > there_is * (1 + 1e-9):
                unit = f"{wanted / 2**30:.1f} GiB of memory" if name == "memory" else f"{wanted:g} {name}"
                yield (
                    f"the ingress of the new graph needs {unit} beside the old one's, and {there_is:g} are free; start "
                    "Ray with more (`ray start --num-cpus`, `--resources`), add a node, or lower `ingress.replicas`"
                )

    def lines(self) -> Iterator[str]:
        """The plan for a terminal."""
        reserved = amounts(self.old.reserved())
        yield f"{self.old.name} answers at {self.old.route} and holds {reserved or 'no accelerator'}"
        for each in self.old.deployments:
            if each.name != INGRESS and (each.running or each.least):
                stays = ", held until the old graph has no call left" if each.least else ", leaves when idle"
                yield f"  {each.name}: {len(each.running)} x {amounts(each.cards) or 'no accelerator'}{stays}"
        yield f"{self.name} starts beside it with {self.ingress.target} ingress replicas and all engines at zero"
        for each in self.engines:
            now = ", starts at once where a card is free" if each.least else ""
            yield f"  {each.name}: {amounts(each.cards) or 'no accelerator'}{now}"
        yield f"both together hold at most {amounts(self.peak()) or 'no accelerator'}"
        waits = [each.name for each in self.engines if not fits(each.cards, self.free)]
        if waits:
            yield f"wait for a card of the old graph, and their callers with them: {', '.join(waits)}"


def fits(needs: Mapping[str, float], free: Mapping[str, float]) -> bool:
    """Says if a replica finds room now."""
    return all(need <= free.get(name, 0.0) * (1 + 1e-9) for name, need in needs.items())


def amounts(of: Mapping[str, float]) -> str:
    """E.g. `2 GPU, 1 card`."""
    return ", ".join(f"{amount:g} {name}" for name, amount in sorted(of.items()) if amount)


def overridden(deployment: Deployment, config: Mapping[str, Any]) -> Deployment:
    """`deployment` with what the list `deployments` of a config file says of it."""
    listed: dict[str, Mapping[str, Any]] = {each["name"]: each for each in config.get("deployments", ())}
    options = listed.get(deployment.name, {})
    is_placed = options.keys() & {"ray_actor_options", "placement_group_bundles"}
    placed = needs(options) if is_placed else deployment.needs
    return replace(deployment, needs=placed, target=options.get("num_replicas", deployment.target))
