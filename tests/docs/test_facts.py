"""What pages say of limits, plans, engines and profiles against `contract/` and the catalogue, in both directions."""

import ast
import inspect
import json
import re
from math import ceil
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

import configs
from autoscaling.deployment import deployment_options
from contract import completions, embeddings, limits, rerank, tracing
from contract.access import TARIFFS, Scope
from contract.catalog import Catalog, Serving
from contract.chat import request as chat
from contract.chat import schemas, thinking
from contract.chat import tools as chat_tools
from contract.messages import request as messages
from contract.realtime import limits as live
from contract.responses import request as responses
from contract.speech import verdict, voices
from contract.transcription.uploads import RECORDING_TYPES
from deployments.ingress.deployment import DEREGISTER_S, IngressArgs
from docs.made.pictures import plots
from state.database import postgres
from tests.catalogs import chat as chat_model
from tests.docs.pages import API, ROOT, rows

OPERATING, SIZING = ROOT / "docs/operating.md", ROOT / "docs/sizing.md"
TRANSCRIBERS = ("voxtral-mini-transcribe", "whisper-large-v3")
IDLE_S = Serving.model_fields["idle_s"].default

Value = float | tuple[float, ...]
"""A limit, or its two bounds."""

UNITS = {"KiB": 1024, "MiB": 1024 * 1024}
MODULES = (
    limits,
    live,
    chat_tools,
    schemas,
    thinking,
    responses,
    messages,
    completions,
    embeddings,
    rerank,
    voices,
    verdict,
    chat,
)
NOT_LIMITS = {"contract.limits.MIB", "contract.embeddings.FLOAT_BYTES", "contract.embeddings.VECTOR_BYTES"}
NOT_MET_BY_CLIENTS = {
    "contract.limits.VALUE_BYTES",
    "contract.limits.LONG_BODY_BYTES",
    "contract.limits.SAMPLES_IN_MEMORY",
    "contract.limits.SAMPLE_IN_MEMORY_S",
    "contract.limits.EARLY_LEAVERS",
    "contract.limits.EARLY_LEAVER_S",
    "contract.limits.CONSOLE_RECORDS_OF_PROCESS",
    "contract.limits.CONSOLE_SPANS",
    "contract.limits.CONSOLE_BUNDLE_BYTES",
    "contract.speech.verdict.LEAST_FOUND",
    "contract.speech.verdict.MOST_FALSE_ALARMS",
}
"""Bounds of the server's own work, which their docstrings explain."""


def test_plans() -> None:
    told = {name: (_number(rate), _number(streams), voices) for name, rate, streams, voices in rows(API, "plan")}
    assert told == {
        plan.name: (plan.requests_per_minute, plan.concurrent_streams, "yes" if plan.voices else "no")
        for plan in TARIFFS.values()
    }


def test_scopes() -> None:
    assert [row[0] for row in rows(API, "scope")] == [scope.value for scope in Scope]


def test_limits() -> None:
    """The values stand in the order of the constants."""
    told = [_number(value) for _, values in rows(API, "limit", "value") for value in values.split("; ")]
    written: dict[str, Value] = {}
    for module in MODULES:
        written |= _constants(module)
    met = {name: value for name, value in written.items() if name not in NOT_MET_BY_CLIENTS}
    assert dict(zip(met, told, strict=True)) == met
    assert written.keys() >= NOT_MET_BY_CLIENTS


def test_minutes_for_which_replaced_replicas_finish_their_requests() -> None:
    for page in (OPERATING, ROOT / "docs/cluster.md"):
        (minutes,) = re.findall(r"finish their requests,? for up to (\d+) minutes", page.read_text("utf-8"))
        drain_s = 60 * int(minutes)
        assert deployment_options(chat_model("m"))["graceful_shutdown_timeout_s"] == drain_s
        assert IngressArgs().deployment_options()["graceful_shutdown_timeout_s"] == drain_s + DEREGISTER_S
        assert f"\nRAY_SERVE_HAPROXY_HARD_STOP_AFTER_S={drain_s}\n" in (ROOT / "configs/ray.env").read_text("utf-8")


def test_connections_and_requests_of_an_ingress_replica() -> None:
    connections = 2 * postgres.POOL_SIZE + postgres.PATIENT_POOL_SIZE
    told = dict(rows(SIZING, "", "one ingress replica"))
    assert _number(told["concurrent requests"]) == IngressArgs().max_ongoing_requests
    assert dict(rows(SIZING, "", ""))["PostgreSQL connections"].startswith(f"{connections} for each ingress replica")
    of_limits = rows(ROOT / "docs/scaling-out.md", "limit", "one replica takes")
    for _, takes, passed_at, *_ in of_limits[:-1]:
        taken, limit = (int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", takes)[:2])
        assert passed_at.startswith(f"{limit // taken + 1} replicas")
    replica = {row[0]: row[1] for row in of_limits}
    assert replica["connections of PostgreSQL"] == f"{connections} of 100"
    measured = json.loads((plots.SPEED / "unit_costs.json").read_text("utf-8"))
    open_at_once, (ingresses, engines, ms) = plots.LOAD * plots.ANSWER_S, measured["looks"][-1]
    assert replica["connections of HAProxy, of one node"] == f"{open_at_once:,} of {plots.HAPROXY_CONNECTIONS:,}"
    for limit, cost in (("settles of PostgreSQL", "settle, postgresql"), ("rates in Redis", "rate, redis")):
        assert replica[limit].startswith(f"{plots.LOAD} of {measured['costs'][cost][0]:.0f} a second")
    assert replica["a look of the controller at one engine"].startswith(f"{1000 * ms / ingresses / engines:.1f} µs")


def test_replicas_for_so_many_people() -> None:
    for people, active, hourly, per_s, each_s, concurrent, replicas in rows(SIZING, "people", "active"):
        share = int(re.sub(r"\D", "", people)) * int(active.rstrip(" %")) * int(hourly) / 100 / 3600
        at_once = round(share * int(each_s), 6)
        assert per_s == f"{share:.{len(per_s.partition('.')[2])}f}"
        assert (int(concurrent), int(replicas)) == (ceil(at_once), ceil(at_once / 64)), people


def test_speech_engines() -> None:
    told = {row[0]: row[1:] for row in rows(API, "engine", "model", "languages")}
    assert told == {
        model.provider: [
            id,
            " ".join(model.languages),
            " ".join(model.formats),
            f"{model.max_input_chars:,}",
            " ".join([*model.tags, *(f"<{span}>" for span in model.spans)]),
        ]
        for id, model in configs.load("embedded").speech.items()
    }


def test_recording_types() -> None:
    (told,) = re.findall(r"^\| `mime` \|(.*)\|$", API.read_text("utf-8"), re.MULTILINE)
    assert re.findall(r"audio/[\w-]+", told) == list(RECORDING_TYPES)


def test_profiles() -> None:
    told = {row[0]: row[2] for row in rows(OPERATING, "profile", "meant for")}
    assert told.keys() == set(configs.PROFILES)
    everything = {model.id for model in configs.load("embedded").models()}
    for profile in ("cpu", "twins"):  # the pages of the others have tables of their own
        named = everything & set(re.findall(r"[\w.-]+", told[profile]))
        assert named == {model.id for model in configs.load(profile).deployed()}, profile


def test_every_model_of_production_has_a_whole_row() -> None:
    told = rows(ROOT / "docs/production-models.md", "model", "twin")
    assert sorted(row[0] for row in told if all(row)) == sorted(
        model.deployment for model in configs.load("production").deployed()
    )
    assert len(told) == len({row[0] for row in told})


def test_idle_times() -> None:
    others = _idle_times(configs.load("embedded"))
    assert (IDLE_S, others) == (300, dict.fromkeys(("cosyvoice", "qwen", *TRANSCRIBERS, "the voice designer"), 120))
    assert "120 s for `cosyvoice`, `qwen`, both transcribers and the voice designer" in _unwrapped(API)


def _constants(module: ModuleType) -> dict[str, Value]:
    """Numbers and pairs of them, in capitals, that the module itself defines and does not import from a neighbour."""
    lines = ast.parse(inspect.getsource(module)).body
    own = {target.id for line in lines if isinstance(line, ast.Assign) for target in line.targets if _is_name(target)}
    return {
        f"{module.__name__}.{name}": value
        for name, value in vars(module).items()
        if name in own
        and name.isupper()
        and all(type(number) in (int, float) for number in (value if type(value) is tuple else (value,)))
        and f"{module.__name__}.{name}" not in NOT_LIMITS
    }


def _is_name(target: ast.expr) -> TypeGuard[ast.Name]:
    return isinstance(target, ast.Name)


def _number(text: str) -> Value:
    """`1,024`, `0.5`, `8 MiB` or `60 s` as a number in the unit of the constant, `2 to 26` as a pair."""
    if pair := re.fullmatch(r"([\d,.]+) to ([\d,.]+)", text):
        return tuple(_number(bound) for bound in pair.groups())
    value, _, unit = text.partition(" ")
    return ast.literal_eval(value.replace(",", "")) * UNITS.get(unit, 1)


def _unwrapped(page: Path) -> str:
    return " ".join(page.read_text("utf-8").split())


def _idle_times(catalog: Catalog) -> dict[str, float]:
    """Seconds by engine, of those that do not keep to the default."""
    serving = {model.provider: model.serving for model in catalog.speech.values()}
    serving |= {"the voice designer": next(iter(catalog.voice_design.values())).serving}
    serving |= {model.id: model.serving for model in catalog.deployed() if model.noun not in ("speech", "voice_design")}
    return {name: table.idle_s for name, table in serving.items() if table and table.idle_s != IDLE_S}


def test_the_page_of_traces_has_every_span() -> None:
    listed = [name for name, _ in rows(ROOT / "docs/tracing-and-logs.md", "span")]
    assert sorted(listed) == sorted([*tracing.Stage, *tracing.LOAD_PHASES, tracing.INFERENCE])
