"""Why a profile (`Plan`) cannot work where it is to run (`Site`): one sentence for each reason, and what to change.

Nothing is started, loaded or fetched for it; adapters are imported, which loads none of their libraries.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import configs
from autoscaling import observation
from autoscaling.deployment import DeploymentTableError, deployment_options
from autoscaling.ray_internals import start
from contract.catalog import Catalog, Model
from deployments.ingress.front.proxies import PUBLIC_VARIABLE
from deployments.ingress.front.proxies import VARIABLE as PROXIES_VARIABLE
from launch.check.cost import replica_of
from models import options
from models.weights import store
from state.blobs.base import BLOBS_VARIABLE
from state.keys import shared_secrets
from state.open import DATABASE_VARIABLE, REDIS_VARIABLE, is_shared, splits


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be deployed: the catalogue of a profile, and how many ingress replicas.

    Attributes:
        only_pinned: whether every file that is loaded must be pinned by its hash.
        public_url: at which clients call, where the environment does not say it.
    """

    catalog: Catalog
    ingress_replicas: int = 1
    only_pinned: bool = False
    public_url: str | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """Where a profile is to run, as far as that is known.

    Attributes:
        environ: environment of the Ray processes.
        nodes: machines.
        gpus: of all machines together, those included that an autoscaler may add; None where nobody knows.
        is_here: whether all replicas start on this machine, so that their interpreters can be looked for.
        home: their PARLANCE_HOME, where it can be read from here; None: this machine's, for replicas that start here.
    """

    environ: Mapping[str, str]
    nodes: int = 1
    gpus: float | None = None
    is_here: bool = True
    home: Path | None = None

    @classmethod
    def of_process(cls) -> Site:
        """The cluster that this process is part of, else this machine.

        How far a cluster grows is known to its autoscaler alone, so its GPUs are not judged.
        """
        nodes = start.nodes()
        if nodes is None:
            return cls(os.environ, gpus=start.gpus_here())
        return cls(os.environ, nodes=nodes, is_here=False)


class UnfitProfileError(Exception):
    """A profile that cannot work; one line for each reason."""


def plan_of(args: Mapping[str, Any]) -> Plan:
    """The plan in the `args` of a Serve config file, with the variables of this process. Raises CatalogError."""
    catalog = configs.load_set_up(args.get("profile", "embedded"), os.environ, args.get("without", ()))
    ingress = args.get("ingress", {})
    only_pinned = args.get("only_pinned_weights", False)
    return Plan(catalog, ingress.get("replicas", 1), only_pinned, ingress.get("public_url"))


def refuse(plan: Plan, site: Site) -> None:
    """Raises UnfitProfileError if `plan` cannot work at `site`."""
    if sentences := list(faults(plan, site)):
        raise UnfitProfileError("\n".join(sentences))


def faults(plan: Plan, site: Site) -> Iterator[str]:
    """Every reason why `plan` cannot work at `site`, one sentence each."""
    if not any(plan.catalog.deployed()):
        profile = plan.catalog.profile
        yield f"the profile `{profile}` sets up no model; add a table `[ID.serving.{profile}]` to a stanza"
    for check in CHECKS:
        yield from check(plan, site)


def _stanzas(plan: Plan, site: Site) -> Iterator[str]:
    """Adapters, their options, and Ray's options of their deployments."""
    for model in plan.catalog.deployed():
        try:
            options.check(model)
            deployment_options(model)
        except (options.OptionsError, DeploymentTableError) as error:
            yield str(error)


def _shared_state(plan: Plan, site: Site) -> Iterator[str]:
    """Several ingress replicas share rows, counters and files."""
    database, redis, blobs = (site.environ.get(name) for name in (DATABASE_VARIABLE, REDIS_VARIABLE, BLOBS_VARIABLE))
    yield from splits(database, redis, blobs, plan.ingress_replicas)


def _secret(plan: Plan, site: Site) -> Iterator[str]:
    """Several machines, or what several can share, need one secret."""
    database, redis = site.environ.get(DATABASE_VARIABLE), site.environ.get(REDIS_VARIABLE)
    if plan.ingress_replicas > 1 or site.nodes > 1 or redis or (database and is_shared(database)):
        try:
            shared_secrets(site.environ)
        except ValueError as error:
            yield str(error)


def _proxies(plan: Plan, site: Site) -> Iterator[str]:
    """Who is in front of several machines is named. One machine may have a tunnel of its own, which is not counted."""
    public_url = site.environ.get(PUBLIC_VARIABLE) or plan.public_url or ""
    if plan.ingress_replicas == site.nodes == 1 or site.environ.get(PROXIES_VARIABLE, "").strip():
        return
    if public_url.startswith("https:"):
        yield (
            f"clients call `{public_url}`, so a proxy terminates TLS in front, but {PROXIES_VARIABLE} does not name "
            "it, and all clients would count as one; set it to the addresses of your proxy on every node"
        )


def _gpus(plan: Plan, site: Site) -> Iterator[str]:
    """Each model finds GPUs for one replica, and those that never sleep for as many as stay awake."""
    if site.gpus is None:
        return
    there = f"there are {site.gpus:g}"
    remedy = f"add machines with GPUs, or remove the tables `serving.{plan.catalog.profile}` of these models"
    replicas = {_place(model): replica_of(model) for model in _sound(plan)}
    if site.gpus == 0:
        if places := [place for place, replica in replicas.items() if replica.gpus]:
            yield f"there is no GPU, but these models need one or a share of one: {', '.join(places)}; {remedy}"
        return
    wanting: dict[float, list[str]] = {}
    for place, replica in replicas.items():
        if replica.gpus > site.gpus:
            wanting.setdefault(replica.gpus, []).append(place)
    for gpus, places in sorted(wanting.items()):
        yield f"a replica needs {gpus:g} GPU, but {there}: {', '.join(places)}; {remedy}"
    always = sum(replica.gpus * replica.fewest for replica in replicas.values())
    if always > site.gpus:
        yield (
            f"the engines that never sleep need {always:g} GPUs, but {there}; lower `autoscaling_config.min_replicas` "
            "in their stanzas, or add machines with GPUs"
        )


def _interpreters(plan: Plan, site: Site) -> Iterator[str]:
    """The environment of an engine that has one of its own."""
    if not site.is_here:
        return
    missing: dict[str, list[str]] = {}
    for model in _sound(plan):
        python = deployment_options(model)["ray_actor_options"]["runtime_env"].get("py_executable")
        if python and not os.access(python, os.X_OK):
            missing.setdefault(python, []).append(_place(model))
    for python, places in missing.items():
        yield (
            f"`{python}` does not exist, but it must run the engine of {', '.join(places)}; build that environment as "
            "docs/engines.md says, or change `py_executable` in the stanza"
        )


def _weights(plan: Plan, site: Site) -> Iterator[str]:
    """Weights are known, and pinned where they have to be."""
    needed: dict[str, str] = {}
    for model in plan.catalog.deployed():
        if model.weights:
            needed.setdefault(model.weights, _place(model))
    unlocked = []
    for name, place in needed.items():
        try:
            store.check(name, only_pinned=plan.only_pinned)
        except store.UnlockedError:
            unlocked.append(name)
        except store.WeightsError as error:
            yield f"{place}: {error}"
    if unlocked:
        yield (
            f"these weights of the model hub are not locked to a commit, or their lock is out of date: "
            f"{', '.join(unlocked)}; run `python -m launch weights lock {plan.catalog.profile}` where the hub can be "
            "reached, and commit models/weights/hub.lock"
        )


def _recordings(plan: Plan, site: Site) -> Iterator[str]:
    """The sound file of each voice that an engine imitates."""
    if not site.is_here and site.home is None:
        return
    home = site.home or store.home_folder()
    for model in plan.catalog.deployed():
        voices = model.serving.options.get("voices", {}) if model.serving else {}
        clips = {slug: voice["clip"] for slug, voice in voices.items() if isinstance(voice, dict) and "clip" in voice}
        if missing := [slug for slug, clip in clips.items() if not (home / Path(clip).expanduser()).is_file()]:
            yield (
                f"{_place(model)} clones recordings that are not below `{home}`: {', '.join(missing)}; put them "
                "there as docs/engines.md says, or remove these voices from `options.voices`"
            )


def _sound(plan: Plan) -> Iterator[Model]:
    """The models whose tables Ray understands; `_stanzas` names the others."""
    for model in plan.catalog.deployed():
        try:
            deployment_options(model)
        except DeploymentTableError:
            continue
        yield model


def _place(model: Model) -> str:
    return f"{model.noun}.toml [{model.id}]"


CHECKS: tuple[Callable[[Plan, Site], Iterator[str]], ...] = (
    _stanzas,
    _shared_state,
    _secret,
    _proxies,
    _gpus,
    _interpreters,
    _weights,
    _recordings,
    lambda plan, site: observation.faults(site.environ),
)
