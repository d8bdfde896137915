"""Reasons why a profile (`Plan`) cannot work where it is to run (`Site`): one sentence each, and the remedy.

Nothing is started, loaded or fetched for it; adapters are imported, which loads none of their libraries.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import configs
from autoscaling import observation
from autoscaling.deployment import DeploymentTableError, deployment_options
from autoscaling.policy.options import needs
from autoscaling.ray_internals import start
from contract.base import ProfileError
from contract.catalog import Catalog, Model
from deployments.ingress.front.proxies import PUBLIC_VARIABLE
from deployments.ingress.front.proxies import VARIABLE as PROXIES_VARIABLE
from launch.check.cost import replica_of
from models import options
from models.weights import store
from state.blobs.open import BLOBS_VARIABLE
from state.keys import shared_secrets
from state.open import DATABASE_VARIABLE, REDIS_VARIABLE, is_shared, splits


class Plan(NamedTuple):
    """The catalogue of a profile that is to be deployed, and the number of ingress replicas.

    Attributes:
        only_pinned: every file that is loaded must be pinned by its hash.
        public_url: address that clients call, if the environment does not set it.
        budget: resources that `scaling.budget` limits.
    """

    catalog: Catalog
    ingress_replicas: int = 1
    only_pinned: bool = False
    public_url: str | None = None
    budget: tuple[str, ...] = ()


class Site(NamedTuple):
    """The machines of a profile, as far as they are known.

    Attributes:
        environ: environment of the Ray processes.
        nodes: machines.
        gpus: of all machines together, those included that an autoscaler may add; None: unknown.
        is_here: all replicas start on this machine, so that their interpreters can be looked for.
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

        Only its autoscaler knows to which size a cluster grows, so its GPUs are not judged.
        """
        nodes = start.nodes()
        return cls(os.environ, nodes, is_here=False) if nodes else cls(os.environ, gpus=start.gpus_here())


def plan_of(args: Mapping[str, Any]) -> Plan:
    """The plan in the `args` of a Serve config file, with the variables of this process. Raises CatalogError."""
    catalog = configs.load_set_up(args.get("profile", "embedded"), os.environ, args.get("without", ()))
    ingress = args.get("ingress", {})
    only_pinned, budget = args.get("only_pinned_weights", False), tuple(args.get("scaling", {}).get("budget", ()))
    return Plan(catalog, ingress.get("replicas", 1), only_pinned, ingress.get("public_url"), budget)


def refuse(plan: Plan, site: Site) -> None:
    """Raises ProfileError, with a line for each reason, if `plan` cannot work at `site`."""
    if sentences := list(faults(plan, site)):
        raise ProfileError("\n".join(sentences))


Reason = str | tuple[str, str, str]
"""A sentence, or the part before a name, the name, and the part behind it: such a sentence lists all its names."""


def faults(plan: Plan, site: Site) -> Iterator[str]:
    """Every reason why `plan` cannot work at `site`, one sentence each."""
    reasons = (reason for check in CHECKS for reason in check(plan, site))
    names: dict[tuple[str, str], dict[str, None]] = {}
    for before, name, behind in ((reason, "", "") if isinstance(reason, str) else reason for reason in reasons):
        names.setdefault((before, behind), {})[name] = None
    return (f"{before}{', '.join(listed)}{behind}" for (before, behind), listed in names.items())


def _models(plan: Plan, site: Site) -> Iterator[Reason]:
    """There is one at least."""
    if not any(plan.catalog.deployed()):
        profile = plan.catalog.profile
        yield f"the profile `{profile}` sets up no model; add a table `[ID.serving.{profile}]` to a stanza"


def _stanzas(plan: Plan, site: Site) -> Iterator[Reason]:
    """Adapters, their options, and Ray's options of their deployments."""
    for model in plan.catalog.deployed():
        try:
            options.check(model)
            deployment_options(model)
        except (options.OptionsError, DeploymentTableError) as error:
            yield str(error)


def _shared_state(plan: Plan, site: Site) -> Iterator[Reason]:
    """Several ingress replicas share rows, counters and files. They, and several machines, share one secret."""
    database, redis, blobs = (site.environ.get(name) for name in (DATABASE_VARIABLE, REDIS_VARIABLE, BLOBS_VARIABLE))
    yield from splits(database, redis, blobs, plan.ingress_replicas)
    if plan.ingress_replicas > 1 or site.nodes > 1 or redis or (database and is_shared(database)):
        try:
            shared_secrets(site.environ)
        except ValueError as error:
            yield str(error)


def _proxies(plan: Plan, site: Site) -> Iterator[Reason]:
    """A proxy in front of several machines is named. One machine may have a tunnel of its own, which is not counted."""
    public_url = site.environ.get(PUBLIC_VARIABLE) or plan.public_url or ""
    is_named = plan.ingress_replicas == site.nodes == 1 or site.environ.get(PROXIES_VARIABLE, "").strip()
    if public_url.startswith("https:") and not is_named:
        yield (
            f"clients call `{public_url}`, so a proxy terminates TLS in front, but {PROXIES_VARIABLE} does not name "
            "it, and all clients would count as one; set it to the addresses of your proxy on every node"
        )


def _gpus(plan: Plan, site: Site) -> Iterator[Reason]:
    """Each model finds GPUs for one replica, and those that never sleep for as many as stay awake."""
    if site.gpus is None:
        return
    remedy = f"; add machines with GPUs, or remove the tables `serving.{plan.catalog.profile}` of these models"
    always = 0.0
    for model, _ in _sound(plan):
        replica = replica_of(model)
        always += replica.gpus * replica.fewest
        if replica.gpus > site.gpus > 0:
            yield f"a replica needs {replica.gpus:g} GPU, but there are {site.gpus:g}: ", _place(model), remedy
        elif replica.gpus > site.gpus:
            yield "there is no GPU, but these models need one or a share of one: ", _place(model), remedy
    if always > site.gpus > 0:
        yield (
            f"the engines that never sleep need {always:g} GPUs, but there are {site.gpus:g}; lower "
            "`autoscaling_config.min_replicas` in their stanzas, or add machines with GPUs"
        )


def _budget(plan: Plan, site: Site) -> Iterator[Reason]:
    """A budget limits resources that the scaling policy shares out; it would look at no others."""
    # Engines that are left out count, too: a config file may leave out the only one of a resource.
    whole = plan._replace(catalog=configs.load(plan.catalog.profile)) if plan.budget else plan
    shared = {"GPU", "memory"}.union(*(needs(table) for each in (plan, whole) for _, table in _sound(each))) - {"CPU"}
    for name in plan.budget:
        if name not in shared:
            yield "`scaling.budget` names ", name, f", but engines share only {', '.join(sorted(shared))}"


def _interpreters(plan: Plan, site: Site) -> Iterator[Reason]:
    """The environment of an engine that has one of its own."""
    remedy = "; build that environment as docs/engines.md says, or change `py_executable` in the stanza"
    for model, table in _sound(plan):
        python = table["ray_actor_options"]["runtime_env"].get("py_executable")
        if site.is_here and python and not os.access(python, os.X_OK):
            yield f"`{python}` does not exist, but it must run the engine of ", _place(model), remedy


def _weights(plan: Plan, site: Site) -> Iterator[Reason]:
    """Weights are known, and pinned where they have to be."""
    for model in plan.catalog.deployed():
        try:
            if model.weights:
                store.check(model.weights, only_pinned=plan.only_pinned)
        except store.UnlockedError:
            yield (
                "these weights of the model hub are not locked to a commit, or their lock is out of date: ",
                str(model.weights),
                f"; run `python -m launch weights lock {plan.catalog.profile}` where the hub can be reached, and "
                "commit models/weights/hub.lock",
            )
        except store.WeightsError as error:
            yield "", _place(model), f": {error}"


def _recordings(plan: Plan, site: Site) -> Iterator[Reason]:
    """The sound file of each voice that an engine imitates."""
    if not site.is_here and site.home is None:
        return
    home = site.home or store.home_folder()
    remedy = "; put them there as docs/engines.md says, or remove these voices from `options.voices`"
    for model in plan.catalog.deployed():
        for slug, voice in (model.serving.options.get("voices", {}) if model.serving else {}).items():
            clip = voice.get("clip") if isinstance(voice, dict) else None
            if clip is not None and not (home / Path(clip).expanduser()).is_file():
                yield f"{_place(model)} clones recordings that are not below `{home}`: ", slug, remedy


def _sound(plan: Plan) -> Iterator[tuple[Model, dict[str, Any]]]:
    """The models with tables that Ray understands, and these; `_stanzas` names the others."""
    for model in plan.catalog.deployed():
        with suppress(DeploymentTableError):
            yield model, deployment_options(model)


def _place(model: Model) -> str:
    return f"{model.noun}.toml [{model.id}]"


CHECKS: tuple[Callable[[Plan, Site], Iterator[Reason]], ...] = (
    _models,
    _stanzas,
    _shared_state,
    _proxies,
    _gpus,
    _budget,
    _interpreters,
    _weights,
    _recordings,
    lambda plan, site: observation.faults(site.environ),
)
