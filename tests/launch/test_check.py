"""Profiles that cannot work are refused before anything starts, each by one sentence that says what to change.

And what `python -m launch check` prints of them, and with which status it ends.
"""

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml

import configs
import graph
from autoscaling.deployment import DeploymentTableError
from contract.base import ProfileError
from contract.catalog import Catalog
from contract.speech.routing import default_engine
from deployments.ingress.deployment import IngressArgs
from launch.check import cost, scaling
from launch.check.cli import main
from launch.check.faults import CHECKS, Plan, Site, faults, plan_of, refuse
from launch.check.scaling import remarks
from models.options import OptionsError
from models.weights import store
from tests.catalogs import behaving, chat

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
    for name in SHARED:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def changed(**serving: Any) -> Catalog:
    """The embedded catalogue with another serving table of its small chat model, and without the other."""
    model = EMBEDDED.chat["smollm2-135m-instruct"]
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


def without(name: str, **others: str) -> Site:
    return Site({key: value for key, value in SHARED.items() if key != name} | others)


ONE, TWO = Plan(EMBEDDED, 1), Plan(EMBEDDED, 2)
GPU, GROUP, AWAKE = (
    Plan(changed(deployment={"ray_actor_options": {"num_gpus": 1}} | more))
    for more in (
        {},
        {"placement_group_bundles": [{"CPU": 1, "GPU": 1}, {"GPU": 1}]},
        {"autoscaling_config": {"min_replicas": 3, "max_replicas": 3}},
    )
)
ON_SQLITE = "^2 ingress replicas cannot share SQLite; set PARLANCE_DATABASE_URL to a PostgreSQL database$"
APART, NO_SECRET = "^2 ingress replicas would each", "set PARLANCE_SECRET to the same value everywhere"
OF_CHAT = (
    r": chat\.toml \[smollm2-135m-instruct\]; .*add machines with GPUs, or remove the tables `serving\.embedded` of "
    "these models"
)
DATABASE, REDIS = {"PARLANCE_DATABASE_URL": "postgresql://db/parlance"}, {"PARLANCE_REDIS_URL": "redis://redis"}


@pytest.mark.parametrize(
    ("plan", "site", "says", "well"),
    [
        (TWO, without("PARLANCE_DATABASE_URL"), ON_SQLITE, Site(SHARED)),
        (TWO, without("", PARLANCE_DATABASE_URL="sqlite:////data/parlance.db"), ON_SQLITE, Site(SHARED)),
        (TWO, without("PARLANCE_REDIS_URL"), APART, Site(SHARED)),
        (TWO, without("PARLANCE_BLOBS_URL"), APART, Site(SHARED)),
        (TWO, without("PARLANCE_SECRET"), NO_SECRET, Site(SHARED)),
        (ONE, Site({}, nodes=2, is_here=False), NO_SECRET, Site(SECRET, nodes=2)),
        (ONE, Site(DATABASE), NO_SECRET, Site(DATABASE | SECRET)),
        (ONE, Site(REDIS), NO_SECRET, Site(REDIS | SECRET)),
        (GPU, Site({}, gpus=0), f"^there is no GPU, but these models need one or a share of one{OF_CHAT}", Site({})),
        (GPU, Site({}, gpus=0.99), rf"^a replica needs 1 GPU, but there are 0\.99{OF_CHAT}", Site({}, gpus=1)),
        (GROUP, Site({}, gpus=1), "^a replica needs 2 GPU, but there are 1", Site({}, gpus=2)),
        (AWAKE, Site({}, gpus=2), "^the engines that never sleep need 3 GPUs, but there are 2", Site({}, gpus=3)),
    ],
)
def test_what_is_missing_is_the_one_reason_until_it_is_there(plan: Plan, site: Site, says: str, well: Site) -> None:
    assert re.search(says, only(plan, site))
    assert list(faults(plan, well)) == []


def test_one_ingress_and_no_gpu_are_enough_where_nothing_wants_more() -> None:
    for plan, site in ((ONE, without("PARLANCE_DATABASE_URL")), (ONE, Site({}, gpus=0)), (GPU, Site({}, gpus=1.01))):
        assert list(faults(plan, site)) == []


@pytest.mark.parametrize("told", ["environment", "config file"])
def test_a_cluster_behind_a_proxy_that_is_not_named(told: str) -> None:
    """All clients would be one address, which may have 256 connections."""
    url = "https://api.example.org"
    plan = Plan(EMBEDDED, 2, public_url=None if told == "environment" else url)
    named = SHARED | ({"PARLANCE_PUBLIC_URL": url} if told == "environment" else {})
    for environ in (named, *(named | {"PARLANCE_PROXIES": nothing} for nothing in ("", " "))):
        assert only(plan, Site(environ)) == (
            f"clients call `{url}`, so a proxy terminates TLS in front, but PARLANCE_PROXIES does not "
            "name it, and all clients would count as one; set it to the addresses of your proxy on every node"
        )
        assert list(faults(plan, Site(environ | {"PARLANCE_PROXIES": "192.0.2.7"}))) == []
        assert list(faults(plan, Site(environ | {"PARLANCE_PUBLIC_URL": "http://10.0.0.7:8000"}))) == []
    # One machine may stand behind a tunnel of its own.
    alone = Plan(EMBEDDED, public_url=url)
    assert list(faults(alone, Site(SECRET, gpus=0))) == []
    assert "PARLANCE_PROXIES" in only(alone, Site(SECRET, nodes=2, is_here=False))


def test_a_malformed_secret() -> None:
    reason = only(Plan(EMBEDDED), Site({"PARLANCE_SECRET": "short"}, nodes=2))
    assert reason.startswith("PARLANCE_SECRET must contain hexadecimal secrets")
    assert "short" not in reason.replace("`openssl", "")


def test_what_misses_gpus_is_told_in_one_sentence() -> None:
    (reason,) = (why for why in faults(Plan(configs.load("production")), Site(SHARED, gpus=0)) if "GPU" in why)
    assert "speech.toml [qwen3-tts]" in reason
    assert "speech.toml [supertonic-3]" not in reason  # has its own processors


FPGA = {"ray_actor_options": {"resources": {"fpga": 1}}}
REASONS: list[tuple[Plan, dict[str, str], str]] = [
    (Plan(changed(options={"enginee": {}})), {}, "there is no such option"),
    (Plan(changed(deployment={"ray_actor_options": {"num_cpu": 1}})), {}, "`ray_actor_options.num_cpu` is no option"),
    (Plan(changed(weights="mine")), {}, "there are no weights `mine`"),
    (Plan(changed(deployment=FPGA), budget=("gpu", "CPU", "fpga")), {}, "gpu, CPU, but engines share only GPU, fpga"),
    (Plan(Catalog(profile="embedded")), {}, "the profile `embedded` sets up no model"),
    (Plan(EMBEDDED), {"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4318"}, "which is no address of HTTP"),
    (Plan(EMBEDDED), {"PARLANCE_LOG_FORMAT": "xml"}, "it must be `text` or `json`"),
]


def test_a_stanza_or_a_variable_at_fault_is_one_reason() -> None:
    for plan, environ, sentence in REASONS:
        assert sentence in only(plan, Site(environ))
    for adapter in ("models.chat:Nobody", "models.nowhere:VllmChat", "nowhere.at.all:Adapter"):
        assert only(Plan(changed(adapter=adapter)), Site({})) == (
            f"chat.toml [smollm2-135m-instruct.serving] `adapter`: there is no adapter `{adapter}`"
        )


def test_an_engine_whose_environment_is_missing(tmp_path: Path) -> None:
    python = tmp_path / "bin/python"
    plan = Plan(changed(deployment={"ray_actor_options": {"runtime_env": {"py_executable": str(python)}}}))
    assert only(plan, Site({})).startswith(f"`{python}` does not exist, but it must run the engine of chat.toml [")
    assert list(faults(plan, Site({}, is_here=False))) == []
    python.parent.mkdir()
    python.touch(mode=0o700)
    assert list(faults(plan, Site({}))) == []


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


def test_a_budget_may_name_what_only_an_engine_has_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = changed(deployment=FPGA)
    monkeypatch.setattr(configs, "load", lambda profile: whole)
    plan = plan_of({"without": [*whole.chat], "scaling": {"budget": {"fpga": 1}}})
    assert list(faults(plan, Site({}))) == []


def test_every_reason_is_told_at_once() -> None:
    plan = Plan(changed(adapter="models.chat:Nobody", weights="mine"), 2)
    assert len(list(faults(plan, Site({})))) == 6
    assert len(CHECKS) == 10


def test_the_graph_is_not_built_where_it_cannot_work() -> None:
    args = {"country": "DE", "ingress": {"replicas": 2}, "scaling": {"budget": {"GPUs": 2}}}
    with pytest.raises(ProfileError, match=r"2 ingress replicas cannot share SQLite(?s:.*) names GPUs, but engines"):
        graph.build(graph.GraphArgs.model_validate(args))


def test_production_is_not_built_of_weights_that_nobody_has_locked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK", home / "nothing-locked")
    (app,) = yaml.safe_load((configs.FOLDER / "production.yaml").read_text("utf-8"))["applications"]
    says = r"not locked to a commit.*: gemma-4-12b, .*; run `python -m launch weights lock"
    with pytest.raises(ProfileError, match=says):
        graph.build(graph.GraphArgs.model_validate(app["args"]))


@pytest.mark.parametrize("profile", configs.PROFILES)
def test_every_profile_can_be_wired(profile: str) -> None:
    graph.wire(configs.load(profile), IngressArgs())
    assert not ray.is_initialized()


def test_the_graph_is_refused_as_a_whole_by_a_sentence_that_names_stanza_and_key() -> None:
    model = EMBEDDED.embeddings["all-minilm-l6-v2"]  # nothing else reads its options before it is loaded
    wrong = model.model_copy(update={"serving": model.setup.model_copy(update={"options": {"dtype": "float61"}})})
    with pytest.raises(OptionsError, match=r"^embeddings\.toml \[all-minilm-l6-v2\.serving\] `options\.dtype`: "):
        graph.wire(EMBEDDED.model_copy(update={"embeddings": {model.id: wrong}}), IngressArgs())
    with pytest.raises(DeploymentTableError, match=r"^chat\.toml \[smollm2-135m-instruct.*`num_replicas` cannot be"):
        graph.wire(changed(deployment={"num_replicas": 2}), IngressArgs())


def test_a_plan_reads_what_a_config_file_says_and_leaves_out_what_it_does_not_want() -> None:
    plan = plan_of({"profile": "twins", "ingress": {"replicas": 3}, "only_pinned_weights": True})
    assert (plan.catalog.profile, plan.ingress_replicas, plan.only_pinned) == ("twins", 3, True)
    plan = plan_of({"scaling": {"budget": {"GPU": 1}}})
    assert (plan.catalog.profile, *plan[1:]) == ("embedded", 1, False, None, ("GPU",))
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


def cells(printed: str, row: str, table: int = 0) -> list[str]:
    (line,) = (line for line in printed.split("\n\n")[table].splitlines() if line.startswith(row))
    return line.removeprefix(row).split()


def test_a_profile_that_can_work_shows_what_its_policy_will_do_unless_serve_decides(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    main(["embedded"])
    printed = capsys.readouterr().out
    for model in configs.load("embedded").deployed():
        assert cells(printed, f"{model.deployment} ")[0] == "0-1"
    assert cells(printed, "at zero")[:2] == ["0", "0"]
    assert printed.endswith("embedded can work.\n")
    assert list(home.iterdir()) == []
    assert cells(printed, "chat-smollm2-135m-instruct ", table=1) == ["~7", "s", "-", "30-300", "s", "-"]
    main([config_file(home, scaling={"by": "serve"})])
    assert "a start" not in capsys.readouterr().out


def config_file(home: Path, **args: Any) -> str:
    """The embedded profile's, with these arguments as well."""
    config = yaml.safe_load((configs.FOLDER / "embedded.yaml").read_text("utf-8"))
    config["applications"][0]["args"] |= args
    file = home / "changed.yaml"
    file.write_text(yaml.safe_dump(config))
    return str(file)


def test_a_profile_that_cannot_work_shows_what_it_takes_and_why(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    file = config_file(home, ingress={"replicas": 2})
    with pytest.raises(SystemExit) as caught:
        main([file])
    assert f"{file}: 2 ingress replicas cannot share SQLite" in str(caught.value)
    assert "at most" in capsys.readouterr().out


def test_a_cluster_is_judged_by_what_is_said_of_it_and_has_a_machine_and_a_profile_exists() -> None:
    for words, says in (
        ("embedded --nodes 2", "set PARLANCE_SECRET"),
        *((f"embedded --nodes {nodes}", "2") for nodes in ("0", "-1", "x")),
        *(("moon", "the profiles are cpu, embedded"), ("moon.yaml", "No such file")),
    ):
        with pytest.raises(SystemExit, match=says):
            main(words.split())
    with pytest.raises(SystemExit) as caught:
        main(["production", "--nodes", "2", "--gpus", "0.1"])
    assert "GPU, but there are 0.1" in str(caught.value)
    assert "does not exist, but it must run" not in str(caught.value)


def test_weights_that_several_models_share_are_counted_once() -> None:
    rows = list(cost.rows(configs.load("embedded")))
    size, unknown = cost.disk_bytes(rows)
    assert unknown == []
    assert size == sum({row.weights: row.disk_bytes or 0 for row in rows}.values())
    assert size < sum(row.disk_bytes or 0 for row in rows)


def test_memory_is_what_ray_reserves_or_grows_with_the_weights() -> None:
    reserved = cost.ReplicaCost(cpus=1, gpus=0, memory_bytes=7, fewest=0, most=2)
    free = cost.ReplicaCost(cpus=1, gpus=0, memory_bytes=None, fewest=1, most=2)
    on_gpu = cost.ReplicaCost(cpus=1, gpus=1, memory_bytes=None, fewest=0, most=1)
    rows = [cost.Row("a", "a", reserved, 5), cost.Row("b", "b", free, 100), cost.Row("c", "c", on_gpu, 10**12)]
    assert rows[0].memory_bytes == 7
    assert rows[1].memory_bytes == cost.LIBRARIES_BYTES + cost.CACHE_BYTES + 100
    assert rows[2].memory_bytes < 10**12
    assert cost.at_zero(rows) == cost.Sum(0, 1, rows[1].memory_bytes)
    assert cost.at_most(rows).gpus == 1
    assert cost.at_most(rows).memory_bytes == 14 + 2 * rows[1].memory_bytes + rows[2].memory_bytes


@pytest.mark.parametrize("profile", ["embedded", "cpu"])
def test_two_cores_have_a_place_for_every_engine_beside_two_ingresses(profile: str) -> None:
    """Of these, one is the next graph's. An engine without a place waits until another one sleeps."""
    assert cost.at_most(list(cost.rows(configs.load(profile)))).cpus + 2 * IngressArgs().cpus <= 2


def test_engines_that_grow_and_that_never_sleep_are_shown() -> None:
    def cells_of(**autoscaling_config: int) -> list[str]:
        model = chat("x", target_wait_s=7, deployment={"autoscaling_config": autoscaling_config})
        _, _, more, idle, _ = next(row for row in scaling.rows(behaving(x=model)) if row[0] == "chat-x")
        return [more, idle]

    assert cells_of(max_replicas=1) == ["-", "30-300 s"]
    assert cells_of(max_replicas=2) == ["7 s, up to 2", "30-300 s"]
    assert cells_of(min_replicas=1, max_replicas=1) == ["-", "never sleeps"]


def test_targets_that_cannot_be_reached_are_said() -> None:
    grows = {"autoscaling_config": {"max_replicas": 2}}
    late = behaving(x=chat("x", target_wait_s=1, load_s=30, deployment=grows))
    (remark,) = remarks(late)
    assert "`target_wait_s` is 1, but a request that finds the engine cold waits for 30 s; set `warm` or" in remark
    alone = behaving(x=chat("x", target_wait_s=60, load_s=30))
    assert [remark.split("; ")[1] for remark in remarks(alone)] == ["raise `autoscaling_config.max_replicas`"]
    assert not list(remarks(behaving(x=chat("x", target_wait_s=60, load_s=30, deployment=grows))))
