"""The serving graph.

    client -> HAProxy -> Ingress -+-> Chat        x LLMs       vLLM replicas
              (Ray's)    state    +-> Embedder    x models     token-budget batches
                         gate     +-> Reranker    x models
                                  +-> Speaker     x engines    text to speech; encodes and marks its sound
                                  +-> Transcriber x models     speech to text; decodes recordings in a sandbox
                                  +-> VoiceDesigner            voices, spoken and measured until the pitch is right
                                  `-> Scorer      x models     decisions; measured before they answer

Every model replica may scale to zero; `autoscaling.gate` decides from replica state what a client gets meanwhile.
`state`, inside the ingress process, stores keys, limits and money.
Requests are handled in `deployments/ingress/flows/` and billed in `state/billing/reservation.py`.

    serve run configs/embedded.yaml       on an existing cluster
    make serve                            on this machine, with everything it needs
"""

# No postponed annotations here: Serve reads the type of `args` to validate a config file against it.

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict
from ray import serve
from ray.serve import Application, Deployment

import configs
from autoscaling.deployment import deployment_options
from autoscaling.policy.options import BY_POLICY, Scaling
from contract.catalog import UNKNOWN_COUNTRY, Catalog, Country, Model, Operator, OperatorName
from deployments.client import connect
from deployments.fork_server.plan import commands
from deployments.ingress.deployment import Ingress, IngressArgs
from deployments.replicas import Chat, Embedder, Replica, Reranker, Scorer, Speaker, Transcriber, VoiceDesigner
from launch.check.faults import Plan, Site, refuse
from launch.check.scaling import remarks
from models.options import check

__all__ = ["GraphArgs", "build", "connect", "wire"]


log = logging.getLogger(f"parlance.{__name__}")

Binder = Callable[..., dict[str, Application]]
"""`bind_each` with `pythons` and `scaling` bound."""


class GraphArgs(BaseModel):
    """`args:` of a Serve config file.

    Attributes:
        profile: profile that selects the models to set up.
        without: ids of models of the profile that are left out.
        operator: operator of the models; every decision names it.
        country: country where the models run, ISO 3166-1; every decision names it, too.
        only_pinned_weights: whether weights are loaded only if their files are pinned by hashes.
        ingress: the HTTP side, see `IngressArgs`.
        fork_server: whether engines without a GPU are forked from a process that has imported their libraries.
        scaling: policy for the number of replicas of an engine, see `Scaling`.
    """

    model_config = ConfigDict(extra="forbid")

    profile: str = "embedded"
    without: tuple[str, ...] = ()
    operator: OperatorName = Operator().name
    country: Country = Operator().country
    only_pinned_weights: bool = False
    fork_server: bool = True
    scaling: Scaling = BY_POLICY
    ingress: IngressArgs = IngressArgs()


def build(args: GraphArgs) -> Application:
    """Returns the graph of a profile: one deployment per model that it sets up, and the ingress in front.

    Raises ProfileError if the profile cannot work here.
    """
    if args.country == UNKNOWN_COUNTRY:
        log.warning("decisions will name no country; set `country` in the args of the profile `%s`", args.profile)
    operator = Operator(name=args.operator, country=args.country)
    catalog = configs.load_set_up(args.profile, os.environ, args.without).model_copy(update={"operator": operator})
    for remark in remarks(catalog):
        log.warning("%s", remark)
    budget = tuple(args.scaling.budget)
    refuse(Plan(catalog, args.ingress.replicas, args.only_pinned_weights, budget=budget), Site.of_process())
    return wire(catalog, args.ingress, fork_server=args.fork_server, scaling=args.scaling)


def wire(
    catalog: Catalog, ingress: IngressArgs, *, fork_server: bool = True, scaling: Scaling = BY_POLICY
) -> Application:
    """Returns the graph of any catalogue. Raises CatalogError if `ingress.warm` names a model that is not set up."""
    if absent := set(ingress.warm) - {model.id for model in catalog.deployed()}:
        raise configs.CatalogError(f"ingress.warm: the profile `{catalog.profile}` sets up no model `{min(absent)}`")
    pythons = commands(catalog.deployed()) if fork_server else {}
    bind: Binder = partial(bind_each, pythons=pythons, scaling=scaling)
    engines = (
        bind(Chat, catalog.chat)
        | bind(Embedder, catalog.embeddings)
        | bind(Reranker, catalog.rerank)
        | bind(Speaker, catalog.speech)
        | bind(Transcriber, catalog.transcription)
        | bind(VoiceDesigner, catalog.voice_design)
        | bind(Scorer, catalog.decisions, tuple(catalog.presets.values()))
    )
    entry: Deployment = Ingress
    return entry.options(**ingress.deployment_options()).bind(ingress, catalog, engines)


def bind_each(
    kind: type[Replica], models: Mapping[str, Model], *arguments: Any, pythons: Mapping[str, str], scaling: Scaling
) -> dict[str, Application]:
    """Returns bound deployments by name, for the models that are set up. Each gets its model and `arguments`.

    `pythons` are commands that start the workers of a deployment, by its name, in place of that in its stanza. Stanzas
    are checked here, before anything starts. Raises OptionsError, DeploymentTableError.
    """
    bound = {}
    deployment = serve.deployment(kind)
    for model in models.values():
        if model.serving:
            check(model)
            options = deployment_options(model, pythons.get(model.deployment), scaling)
            bound[model.deployment] = deployment.options(**options).bind(model, *arguments)
    return bound
