"""Profiles that cannot work are refused before anything starts, each by one sentence that says what to change."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

import configs
import graph
from contract.base import ProfileError
from contract.catalog import Catalog
from contract.speech.routing import default_engine
from launch.check.faults import CHECKS, Plan, Site, faults, plan_of, refuse
from models.weights import store

EMBEDDED = configs.load("embedded")
SECRET = {"PARLANCE_SECRET": "ab" * 32}
SHARED = SECRET | {
    "PARLANCE_DATABASE_URL": "postgresql://parlance@db/parlance",
    "PARLANCE_REDIS_URL": "redis://redis",
    "PARLANCE_BLOBS_URL": "s3://parlance/files",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARLANCE_HOME", str(tmp_path))
    return tmp_path


def changed(**serving: Any) -> Catalog:
    """The embedded catalogue with another serving table of its small chat model, and without the other."""
    model = EMBEDDED.chat["smollm2-135m-instruct"]
    assert model.serving
    other = model.model_copy(update={"serving": model.serving.model_copy(update=serving)})
    return EMBEDDED.model_copy(update={"chat": {model.id: other}})


def only(plan: Plan, site: Site) -> str:
    """The one reason against `plan`."""
    (reason,) = faults(plan, site)
    with pytest.raises(ProfileError) as caught:
        refuse(plan, site)
    assert str(caught.value) == reason
    assert "\n" not in reason
    return reason


def test_the_embedded_profile_can_work_without_a_gpu_and_without_a_variable() -> None:
    assert list(faults(Plan(EMBEDDED), Site({}, gpus=0))) == []


@pytest.mark.parametrize("url", [None, "sqlite:////data/parlance.db"])
def test_sqlite_with_two_ingress_replicas(url: str | None) -> None:
    environ = {name: value for name, value in SHARED.items() if name != "PARLANCE_DATABASE_URL"}
    environ |= {"PARLANCE_DATABASE_URL": url} if url else {}
    assert only(Plan(EMBEDDED, 2), Site(environ)) == (
        "2 ingress replicas cannot share SQLite; set PARLANCE_DATABASE_URL to a PostgreSQL database"
    )
    assert list(faults(Plan(EMBEDDED, 1), Site(environ))) == []
    assert list(faults(Plan(EMBEDDED, 2), Site(SHARED))) == []


@pytest.mark.parametrize("proxies", [None, "", " "])
@pytest.mark.parametrize("told", ["environment", "config file"])
def test_a_cluster_behind_a_proxy_that_is_not_named(proxies: str | None, told: str) -> None:
    """All clients would be one address, which may have 256 connections."""
    environ = SHARED | ({} if proxies is None else {"PARLANCE_PROXIES": proxies})
    environ |= {"PARLANCE_PUBLIC_URL": "https://api.example.org"} if told == "environment" else {}
    plan = Plan(EMBEDDED, 2, public_url=None if told == "environment" else "https://api.example.org")
    assert only(plan, Site(environ)) == (
        "clients call `https://api.example.org`, so a proxy terminates TLS in front, but PARLANCE_PROXIES does not "
        "name it, and all clients would count as one; set it to the addresses of your proxy on every node"
    )
    assert list(faults(plan, Site(environ | {"PARLANCE_PROXIES": "192.0.2.7"}))) == []
    assert list(faults(plan, Site(environ | {"PARLANCE_PUBLIC_URL": "http://10.0.0.7:8000"}))) == []


def test_one_machine_may_stand_behind_a_tunnel_of_its_own_without_a_name() -> None:
    plan = Plan(EMBEDDED, public_url="https://api.example.org")
    assert list(faults(plan, Site(SECRET, gpus=0))) == []
    assert "PARLANCE_PROXIES" in only(plan, Site(SECRET, nodes=2, is_here=False))


def test_every_variable_that_is_missing_is_named_at_once() -> None:
    told = "\n".join(faults(Plan(EMBEDDED, 2, public_url="https://api.example.org"), Site({}, nodes=2, is_here=False)))
    for name in ("DATABASE_URL", "REDIS_URL", "BLOBS_URL", "SECRET", "PROXIES"):
        assert f"PARLANCE_{name}" in told


@pytest.mark.parametrize("absent", ["PARLANCE_REDIS_URL", "PARLANCE_BLOBS_URL"])
def test_two_ingress_replicas_that_share_no_counters_or_no_files(absent: str) -> None:
    environ = {name: value for name, value in SHARED.items() if name != absent}
    assert only(Plan(EMBEDDED, 2), Site(environ)).startswith("2 ingress replicas would each")


@pytest.mark.parametrize(
    ("site", "replicas"),
    [
        (Site({}, nodes=2, is_here=False), 1),
        (Site({"PARLANCE_DATABASE_URL": "postgresql://db/parlance"}), 1),
        (Site({"PARLANCE_REDIS_URL": "redis://redis"}), 1),
        (Site({name: value for name, value in SHARED.items() if name != "PARLANCE_SECRET"}), 2),
    ],
)
def test_no_secret_where_several_need_the_same(site: Site, replicas: int) -> None:
    assert "set PARLANCE_SECRET to the same value everywhere" in only(Plan(EMBEDDED, replicas), site)
    assert list(faults(Plan(EMBEDDED, replicas), Site({**site.environ, **SECRET}, site.nodes))) == []


def test_a_malformed_secret() -> None:
    reason = only(Plan(EMBEDDED), Site({"PARLANCE_SECRET": "short"}, nodes=2))
    assert reason.startswith("PARLANCE_SECRET must contain hexadecimal secrets")
    assert "short" not in reason.replace("`openssl", "")


@pytest.mark.parametrize(
    ("gpus", "says"),
    [
        (0, "there is no GPU, but these models need one or a share of one: chat.toml [smollm2-135m-instruct];"),
        (0.99, "a replica needs 1 GPU, but there are 0.99: chat.toml [smollm2-135m-instruct];"),
        *((enough_or_unknown, None) for enough_or_unknown in (1, 1.01, None)),
    ],
)
def test_a_model_that_takes_a_gpu_needs_one(gpus: float | None, says: str | None) -> None:
    plan, site = Plan(changed(deployment={"ray_actor_options": {"num_gpus": 1}})), Site({}, gpus=gpus)
    if says is None:
        assert list(faults(plan, site)) == []
        return
    reason = only(plan, site)
    assert reason.startswith(says)
    assert "add machines with GPUs, or remove the tables `serving.embedded` of these models" in reason


def test_what_misses_gpus_is_told_in_one_sentence() -> None:
    reasons = [reason for reason in faults(Plan(configs.load("production")), Site(SHARED, gpus=0)) if "GPU" in reason]
    assert len(reasons) == 1
    assert "speech.toml [qwen3-tts]" in reasons[0]
    assert "speech.toml [supertonic-3]" not in reasons[0]  # has its own processors


def test_gpus_of_a_placement_group_count_together() -> None:
    group = {"placement_group_bundles": [{"CPU": 1, "GPU": 1}, {"GPU": 1}], "ray_actor_options": {"num_gpus": 1}}
    plan = Plan(changed(deployment=group))
    assert only(plan, Site({}, gpus=1)).startswith("a replica needs 2 GPU, but there are 1")
    assert list(faults(plan, Site({}, gpus=2))) == []


def test_engines_that_never_sleep_and_find_no_gpus() -> None:
    table = {"autoscaling_config": {"min_replicas": 3, "max_replicas": 3}, "ray_actor_options": {"num_gpus": 1}}
    plan = Plan(changed(deployment=table))
    assert only(plan, Site({}, gpus=2)).startswith("the engines that never sleep need 3 GPUs, but there are 2")
    assert list(faults(plan, Site({}, gpus=3))) == []


@pytest.mark.parametrize("adapter", ["models.chat:Nobody", "models.nowhere:VllmChat"])
def test_an_unknown_adapter(adapter: str) -> None:
    assert only(Plan(changed(adapter=adapter)), Site({})) == (
        f"chat.toml [smollm2-135m-instruct.serving] `adapter`: there is no adapter `{adapter}`"
    )


def test_an_option_that_its_adapter_does_not_know() -> None:
    assert "there is no such option" in only(Plan(changed(options={"enginee": {}})), Site({}))


def test_an_option_that_ray_does_not_know() -> None:
    reason = only(Plan(changed(deployment={"ray_actor_options": {"num_cpu": 1}})), Site({}))
    assert "`ray_actor_options.num_cpu` is no option of Ray" in reason


def test_an_engine_whose_environment_is_missing(tmp_path: Path) -> None:
    python = tmp_path / "bin/python"
    plan = Plan(changed(deployment={"ray_actor_options": {"runtime_env": {"py_executable": str(python)}}}))
    assert only(plan, Site({})).startswith(f"`{python}` does not exist, but it must run the engine of chat.toml [")
    assert list(faults(plan, Site({}, is_here=False))) == []
    python.parent.mkdir()
    python.touch(mode=0o700)
    assert list(faults(plan, Site({}))) == []


def test_weights_that_nobody_knows() -> None:
    assert "there are no weights `mine`" in only(Plan(changed(weights="mine")), Site({}))


def test_weights_of_the_hub_that_nobody_has_locked(home: Path) -> None:
    (home / "repositories.toml").write_text('[mine]\nrepository = "me/mine"\nlicence = "MIT"\n')
    catalog = changed(weights="mine")
    assert list(faults(Plan(catalog), Site({}))) == []
    assert only(Plan(catalog, only_pinned=True), Site({})) == (
        "these weights of the model hub are not locked to a commit, or their lock is out of date: mine; run "
        "`python -m launch weights lock embedded` where the hub can be reached, and commit models/weights/hub.lock"
    )
    pins = f'[mine.files]\n"model.safetensors" = {{ size = 1, sha256 = "{"0" * 64}" }}\n'
    stanza = f'[mine]\nsource = "hub:me/mine"\nrevision = "{"1" * 40}"\nlicence = "MIT"\n{pins}'
    (home / "hub.lock").write_text(stanza)
    assert "are not locked" in only(Plan(catalog, only_pinned=True), Site({}))
    (home / "weights.toml").write_text(stanza)
    assert list(faults(Plan(catalog, only_pinned=True), Site({}))) == []


def test_a_folder_that_nobody_has_pinned(home: Path) -> None:
    (home / "weights.toml").write_text('[mine]\nsource = "dir:/models/mine"\nlicence = "MIT"\n')
    catalog = changed(weights="mine")
    assert list(faults(Plan(catalog), Site({}))) == []
    reason = only(Plan(catalog, only_pinned=True), Site({}))
    assert "the weights `mine` are a folder with files that are not pinned" in reason
    assert "python -m launch weights pin mine dir:/models/mine" in reason


def test_a_voice_whose_recording_is_missing(home: Path) -> None:
    production = configs.load("production")
    model = production.speech["qwen3-tts"]
    assert model.serving
    plain = model.serving.model_copy(update={"deployment": {}, "weights": None})
    catalog = EMBEDDED.model_copy(update={"speech": {model.id: model.model_copy(update={"serving": plain})}})
    reason = only(Plan(catalog), Site({}))
    assert "clones recordings that are not below" in reason
    assert "rooom-f-01, rooom-f-02, rooom-m-01, rooom-m-02" in reason
    (home / "voices").mkdir()
    (home / "voices/rooom-f-01.wav").touch()
    assert ": rooom-f-02, rooom-m-01, rooom-m-02;" in only(Plan(catalog), Site({}))
    assert list(faults(Plan(catalog), Site({}, is_here=False))) == []
    shared = home / "shared"
    (shared / "voices").mkdir(parents=True)
    assert f"not below `{shared}`: rooom-f-01," in only(Plan(catalog), Site({}, is_here=False, home=shared))


def test_traces_that_could_not_be_sent_and_a_log_that_could_not_be_written() -> None:
    address = {"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4318"}
    assert "which is no address of HTTP" in only(Plan(EMBEDDED), Site(address))
    assert "it must be `text` or `json`" in only(Plan(EMBEDDED), Site({"PARLANCE_LOG_FORMAT": "xml"}))


def test_a_profile_that_sets_up_no_model() -> None:
    assert only(Plan(Catalog(profile="embedded")), Site({})).startswith("the profile `embedded` sets up no model")


def test_every_reason_is_told_at_once() -> None:
    plan = Plan(changed(adapter="models.chat:Nobody", weights="mine"), 2)
    assert len(list(faults(plan, Site({})))) == 6
    assert len(CHECKS) == 9


def test_the_graph_is_not_built_where_it_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARLANCE_DATABASE_URL", raising=False)
    args = graph.GraphArgs.model_validate({"profile": "embedded", "country": "DE", "ingress": {"replicas": 2}})
    with pytest.raises(ProfileError, match="2 ingress replicas cannot share SQLite"):
        graph.build(args)


def test_production_is_not_built_of_weights_that_nobody_has_locked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK", home / "nothing-locked")
    (app,) = yaml.safe_load((configs.FOLDER / "production.yaml").read_text("utf-8"))["applications"]
    with pytest.raises(
        ProfileError, match=r"not locked to a commit.*: gemma-4-12b, .*; run `python -m launch weights lock"
    ):
        graph.build(graph.GraphArgs.model_validate(app["args"]))


def test_a_plan_reads_what_a_config_file_says() -> None:
    plan = plan_of({"profile": "twins", "ingress": {"replicas": 3}, "only_pinned_weights": True})
    assert (plan.catalog.profile, plan.ingress_replicas, plan.only_pinned) == ("twins", 3, True)
    plan = plan_of({})
    assert (plan.catalog.profile, plan.ingress_replicas, plan.only_pinned) == ("embedded", 1, False)


def test_a_plan_leaves_out_what_a_config_file_does_not_want() -> None:
    every = {model.id for model in plan_of({}).catalog.deployed()}
    smaller = plan_of({"without": ["smollm2-135m-instruct", "whisper-large-v3"]}).catalog
    assert {model.id for model in smaller.deployed()} == every - {"smollm2-135m-instruct", "whisper-large-v3"}
    assert "smollm2-135m-instruct" in smaller.chat  # known, and not set up
    with pytest.raises(configs.CatalogError, match="`without` names `smollm3`, which is no model; there are qwen2"):
        plan_of({"without": ["smollm3"]})


@pytest.mark.parametrize(("key", "is_set_up"), [(None, False), (" ", False), ("secret", True)])
def test_an_engine_of_a_provider_is_set_up_where_its_key_is(
    key: str | None, is_set_up: bool, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = configs.load_set_up("production", {} if key is None else {"MISTRAL_API_KEY": key})
    assert ("voxtral-mini-tts" in {model.id for model in catalog.deployed()}) == is_set_up
    told = "`voxtral-mini-tts` is switched off: it needs the key of its provider in `MISTRAL_API_KEY`"
    assert (told in caplog.messages) != is_set_up
    speaks = default_engine({model.provider: model for model in catalog.speech.values()}, date(2026, 10, 1))
    assert speaks.id == ("voxtral-mini-tts" if is_set_up else "supertonic-3")
