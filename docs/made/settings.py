"""docs/settings.md: every environment variable, every key of `args`, and every key of a stanza."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from autoscaling.policy.options import Scaling
from contract.catalog import CATALOG_TYPES, Serving
from contract.hours import WarmHours
from deployments.ingress.deployment import IngressArgs
from deployments.ingress.wire.openapi import meanings
from docs.made.schemas import default, words
from graph import GraphArgs

VARIABLES = {
    "PARLANCE_HOME": ("`var`", "folder of the database, keys, weights, recordings and logs of this machine"),
    "PARLANCE_DATABASE_URL": ("SQLite in `PARLANCE_HOME`", "PostgreSQL; takes libpq's parameters (`?sslmode=require`)"),
    "PARLANCE_REDIS_URL": ("memory", "Redis (`redis://`, `rediss://`) for rates and streams of all ingress replicas"),
    "PARLANCE_BLOBS_URL": ("below `PARLANCE_HOME`", "`s3://BUCKET/PREFIX` (with `AWS_...`), or `file:///FOLDER`"),
    "PARLANCE_SECRET": ("made in `PARLANCE_HOME`", "what keys and signed addresses depend on; the newest comes first"),
    "PARLANCE_PUBLIC_URL": ("`public_url` of `args`", "what clients call; signed addresses begin with it"),
    "PARLANCE_PROXIES": (
        "nobody",
        "addresses of proxies whose `X-Forwarded-...` is believed, with blanks between them",
    ),
    "PARLANCE_CONNECTIONS_PER_ADDRESS": ("256", "connections of one address at a time"),
    "PARLANCE_OFFLINE": ("no", "`1`: nothing is fetched; weights must be here"),
    "PARLANCE_C2PA_CERTIFICATE": ("sound is not signed", "PEM of the chain that signs sound as AI-generated"),
    "PARLANCE_C2PA_KEY": ("sound is not signed", "PEM of its key"),
    "PARLANCE_LOG_FORMAT": ("`text`", "`json`: each line of the log of ingress and engines is an object"),
    "PARLANCE_ACCESS_LOG": ("no", "`1`: a line for each request, with its route, status, model and times"),
    "PARLANCE_IDLE_S": ("`idle_s` of each stanza", "seconds after which any idle engine stops; for trying things out"),
}
"""Defaults and meanings. Read by operators; what the programs hand to each other is not here."""

STANDARD = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": (
        "no traces",
        "address of a collector of OTLP over HTTP, e.g. `http://127.0.0.1:4318`",
    ),
    "OTEL_EXPORTER_OTLP_HEADERS": (
        "none",
        "what the collector wants with each call, e.g. `authorization=Bearer%20KEY`",
    ),
    "OTEL_EXPORTER_OTLP_TIMEOUT": ("10", "seconds for a call of the collector and its repetitions"),
    "OTEL_EXPORTER_OTLP_CERTIFICATE": (
        "those of the system",
        "PEM of the authorities that may vouch for the collector",
    ),
    "OTEL_TRACES_SAMPLER": (
        "`parentbased_always_on`",
        "which traces begin here: `parentbased_traceidratio` for a share",
    ),
    "OTEL_TRACES_SAMPLER_ARG": (
        "1.0",
        "that share, 0 to 1; what a client has decided for its trace holds all the same",
    ),
    "OTEL_BSP_SCHEDULE_DELAY": ("5000", "milliseconds between two calls of the collector"),
    "OTEL_SERVICE_NAME": ("`parlance`", "name of the service in traces"),
    "OTEL_RESOURCE_ATTRIBUTES": ("none", "what else traces say of it, e.g. `deployment.environment.name=test`"),
    "OTEL_SDK_DISABLED": ("no", "`true`: no traces, whatever else is set"),
    "RAY_LOG_TO_STDERR": (
        "files",
        "`1`: lines of ingress and engines go to standard output, too, for containers; those of Ray to no file",
    ),
}
"""Variables of OpenTelemetry and of Ray that operators of this service need. OpenTelemetry's SDK reads its own."""

INTERNAL = frozenset({"PARLANCE_HAPROXY", "PARLANCE_LOOPBACK", "PARLANCE_SLOT"})
"""Set by the start itself."""
OF_CLIENTS = frozenset({"PARLANCE_KEY", "PARLANCE_OTHER_KEY", "PARLANCE_URL"})
"""Read by benchmarks and examples, which are clients."""

HEAD = """# Settings

<!-- Made by `make docs` of docs/made/settings.py, graph.py, deployments/ingress and contract/catalog. -->

Three places say how a server is: the environment of its Ray processes, the `args` of a Serve config file (one for each
profile in `configs/`), and the stanza of each model (in `configs/catalog/`). `python -m launch check PROFILE` reads all
three without a start.

## Environment

| variable | without it | what it is |
|---|---|---|
"""


STANDARD_HEAD = """

[Traces and logs](tracing-and-logs.md) are set by names of OpenTelemetry's and Ray's own:

| variable | without it | what it is |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    lines = [f"| `{name}` | {without} | {meaning} |" for name, (without, meaning) in VARIABLES.items()]
    standard = [f"| `{name}` | {without} | {meaning} |" for name, (without, meaning) in STANDARD.items()]
    text = HEAD + "\n".join(lines) + STANDARD_HEAD + "\n".join(standard) + "\n"
    text += "\nRay's own settings are in `configs/ray.env`, each with its reason.\n"
    text += section("`args` of a config file", GraphArgs)
    text += section("`args.ingress`", IngressArgs)
    text += section("`args.scaling`", Scaling)
    text += section("`[ID.serving.PROFILE]`, how a profile runs a model", Serving)
    text += section("WarmHours", WarmHours)
    for kind in CATALOG_TYPES.values():
        text += section(f"`[ID]` in `{kind.noun}.toml`", kind)
    return text


def section(title: str, model: type[BaseModel]) -> str:
    """A table of the fields of `model`."""
    schema = model.model_json_schema()
    required, says = set(schema.get("required", ())), dict(_meanings(model))
    lines = [f"\n## {title}\n", "| key | type | default | what it is |", "|---|---|---|---|"]
    for name, field in schema["properties"].items():
        if name in {"id", "serving"}:
            continue
        value = "required" if name in required else "" if "$ref" in field else default(field)
        lines.append(f"| `{name}` | {_unlinked(words(field))} | {value} | {says.get(name, '')} |")
    return "\n".join(lines) + "\n"


def _meanings(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """What the docstrings of a model and of those that it is made of say of its fields; its own come last."""
    for base in reversed(model.__mro__):
        if base.__doc__ and issubclass(base, BaseModel) and base is not BaseModel:
            yield from meanings(base.__doc__ or "").items()


def _unlinked(text: str) -> str:
    """Without links to types that have no table here."""
    return "table" if text.startswith("[") else text
