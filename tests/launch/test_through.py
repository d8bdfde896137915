"""Decision models that read through a chat model: what does not fit is refused before anything starts."""

from __future__ import annotations

import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import configs
import graph
from autoscaling.deployment import deployment_options
from contract.catalog import Catalog, Serving
from deployments.ingress.deployment import IngressArgs
from launch.check import cost
from launch.check.faults import Plan, faults
from launch.check.site import Site
from tests.docs.pages import ROOT, marked

EMBEDDED = configs.load("embedded")
CHAT, DECISION = "smollm2-135m-instruct", "decision-v2"
FLOAT32 = {"hf_overrides": {"head_dtype": "float32"}}
FITTING: dict[str, Any] = {
    "adapter": "models.decisions:ThroughScorer",
    "reads_through": CHAT,
    "threads": None,
    "deployment": {},
    "options": {"calibrated": True},
}
PLACE = "decisions.toml [decision-v2.serving]"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARLANCE_HOME", str(tmp_path))
    return tmp_path


def through(chat: dict[str, Any] | None = None, window: int = 8192, **decision: Any) -> Catalog:
    """The embedded catalogue whose second decision model reads through its chat model; both as told."""
    theirs, ours = EMBEDDED.chat[CHAT], EMBEDDED.decisions[DECISION]
    assert theirs.serving
    assert ours.serving
    options = theirs.serving.options | {"engine": theirs.serving.options["engine"] | FLOAT32}
    theirs = theirs.model_copy(
        update={"serving": theirs.serving.model_copy(update={"options": options} | (chat or {}))}
    )
    serving = ours.serving.model_copy(update=FITTING | decision)
    ours = ours.model_copy(update={"serving": serving, "context_window": window})
    changed = {"chat": EMBEDDED.chat | {CHAT: theirs}, "decisions": EMBEDDED.decisions | {DECISION: ours}}
    return EMBEDDED.model_copy(update=changed)


def only(catalog: Catalog) -> str:
    """The one reason against the profile."""
    (reason,) = faults(Plan(catalog), Site({}, gpus=1))
    assert "\n" not in reason
    return reason


def test_two_stanzas_that_agree_can_work() -> None:
    assert list(faults(Plan(through()), Site({}, gpus=0))) == []


@pytest.mark.parametrize("id", ["qwen3.5-9b", "moon"])
def test_a_chat_model_that_is_not_set_up(id: str) -> None:
    assert only(through(reads_through=id)) == (
        f"{PLACE} `reads_through`: the profile `embedded` sets up no chat model `{id}`; there are `{CHAT}`"
    )


def test_a_chat_model_with_other_weights() -> None:
    assert only(through(weights="all-minilm-l6-v2")) == (
        f"{PLACE} `weights`: `{CHAT}` loads `{CHAT}`, not `all-minilm-l6-v2`"
    )


@pytest.mark.parametrize("arguments", [{}, {"hf_overrides": {"head_dtype": "bfloat16"}}, {"hf_overrides": {}}])
def test_a_chat_model_whose_head_is_not_in_float32(arguments: dict[str, Any]) -> None:
    reason = only(through(chat={"options": {"engine": arguments}}))
    assert reason == (
        f"chat.toml [{CHAT}.serving] `options.engine`: `decision-v2` is read through it, so it needs "
        '`hf_overrides = { head_dtype = "float32" }`'
    )


@pytest.mark.parametrize(
    "options", [{"strategy": "next-token"}, {"exact": True}, {"engine_process": True}, {"images": True}, {"engine": {}}]
)
def test_options_of_an_engine_that_it_does_not_have(options: dict[str, Any]) -> None:
    (name,) = options
    assert only(through(options=options)) == (
        f"{PLACE} `options.{name}`: there is no such option; there are `calibrated`"
    )


def test_threads_and_a_gpu_of_its_own() -> None:
    assert only(through(threads=2)) == f"{PLACE} `threads`: it computes nothing here; the threads are the chat model's"
    assert only(through(deployment={"ray_actor_options": {"num_gpus": 0.5}})) == (
        f"{PLACE} `deployment`: it takes 0.5 GPU and would use none; the chat model has its own"
    )


def test_an_adapter_with_an_engine_of_its_own() -> None:
    assert only(through(adapter="models.decisions:LabelScorer")) == (
        f"{PLACE} `adapter`: `models.decisions:LabelScorer` reads through no chat model; "
        "`models.decisions:ThroughScorer` does"
    )


def test_an_adapter_that_needs_a_chat_model_and_is_given_none() -> None:
    assert only(through(reads_through=None)) == (
        f"{PLACE} `reads_through`: `models.decisions:ThroughScorer` needs the id of a chat model"
    )


def test_a_model_that_is_no_decision_model() -> None:
    assert only(through(chat={"reads_through": CHAT})) == (
        f"chat.toml [{CHAT}.serving] `reads_through`: only decision models read through another model"
    )


def test_other_manners_where_all_streams_are_taken() -> None:
    assert only(through(when_busy="refuse")) == (
        f"{PLACE} `when_busy`: it is `refuse`; that of `{CHAT}`, whose streams it takes, is `queue`"
    )


@pytest.mark.parametrize(("window", "count"), [(8191, 0), (8192, 0), (8193, 1)])
def test_a_window_beyond_that_of_the_chat_model(window: int, count: int) -> None:
    reasons = list(faults(Plan(through(window=window)), Site({})))
    assert (
        reasons
        == [f"decisions.toml [decision-v2] `context_window`: 8193 tokens do not fit `{CHAT}`, which has 8192"][:count]
    )


def test_it_takes_no_gpu_and_no_room_for_weights() -> None:
    catalog = through(chat={"deployment": {"ray_actor_options": {"num_gpus": 1}}})
    rows = {row.name: row for row in cost.rows(catalog)}
    row = rows["decisions-decision-v2"]
    assert (row.replica.gpus, row.replica.cpus, row.memory_bytes) == (0, 0.25, cost.LIBRARIES_BYTES)
    assert cost.at_most(list(rows.values())).gpus == 1
    own = next(row for row in cost.rows(EMBEDDED) if row.name == "decisions-decision-v2")
    assert own.memory_bytes > cost.LIBRARIES_BYTES + cost.CACHE_BYTES


def test_its_replica_gets_the_chat_model_with_its_handle() -> None:
    catalog = through()
    bind = partial(graph.bind_each, pythons={})
    chats = bind(graph.Chat, catalog.chat)
    scorers = graph.bind_scorers(bind, catalog, chats)
    arguments = {name: app._bound_deployment.init_args for name, app in scorers.items()}
    model = catalog.decisions[DECISION]
    assert arguments["decisions-decision-v2"][0] == model
    assert arguments["decisions-decision-v2"][2:] == (catalog.chat[CHAT], chats[f"chat-{CHAT}"])
    assert arguments["decisions-decision-v1"][2:] == ()
    assert deployment_options(model)["ray_actor_options"]["num_cpus"] == 0.25
    graph.wire(catalog, IngressArgs())


def test_the_stanzas_of_the_page_agree() -> None:
    production, page = configs.load("production"), ROOT / "docs/decision-models.md"
    ((id, stanza),) = tomllib.loads(marked(page, "stanza of decisions")).items()
    ((theirs, change),) = tomllib.loads(marked(page, "stanza of chat")).items()
    ours, chat = production.decisions[id], production.chat[theirs]
    assert chat.serving
    arguments = change["serving"]["production"]["options"]["engine"]
    assert arguments == chat.serving.options["engine"] | FLOAT32
    options = {"options": chat.serving.options | {"engine": arguments}}
    chat = chat.model_copy(update={"serving": chat.serving.model_copy(update=options)})
    ours = ours.model_copy(update={"serving": Serving.model_validate(stanza["serving"]["production"])})
    catalog = production.model_copy(update={"chat": {theirs: chat}, "decisions": {id: ours}})
    assert [reason for reason in faults(Plan(catalog), Site({}, gpus=1)) if id in reason or theirs in reason] == []
    before = catalog.model_copy(update={"decisions": {id: production.decisions[id]}})
    least, most = (cost.at_most(list(cost.rows(one))).gpus for one in (catalog, before))
    assert most - least == 2 * 0.5, "two replicas on half a card each"
