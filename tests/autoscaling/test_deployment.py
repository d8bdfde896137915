"""A stanza's `serving` as deployment options."""

import re
from pathlib import Path
from typing import Any

import pytest
from ray.serve.config import AutoscalingConfig

from autoscaling.deployment import IDLE_VARIABLE, NOT_HERE, DeploymentTableError, deployment_options, merged
from contract.catalog import ChatModel
from tests.catalogs import chat

ROOT = Path(__file__).parent.parent.parent

SCALING = {
    "min_replicas": 1,
    "initial_replicas": 2,
    "max_replicas": 3,
    "target_ongoing_requests": 4.5,
    "metrics_interval_s": 5,
    "look_back_period_s": 6.0,
    "smoothing_factor": 0.5,
    "upscale_smoothing_factor": 0.6,
    "downscale_smoothing_factor": 0.7,
    "upscaling_factor": 0.8,
    "downscaling_factor": 0.9,
    "downscale_delay_s": 7,
    "downscale_to_zero_delay_s": 8,
    "upscale_delay_s": 9,
    "aggregation_function": "max",
    "policy": {"policy_function": "ray.serve.autoscaling_policy:default_autoscaling_policy"},
}


def model(table: dict[str, Any] | None = None, **serving: Any) -> ChatModel:
    return chat("x", deployment=table or {}, **serving)


def options(table: dict[str, Any] | None = None, **serving: Any) -> dict[str, Any]:
    return deployment_options(model(table, **serving))


def refusal(table: dict[str, Any]) -> str:
    with pytest.raises(DeploymentTableError) as caught:
        options(table)
    sentence = str(caught.value)
    assert sentence.startswith("chat.toml [x], table `deployment`: ")
    assert "\n" not in sentence
    return sentence


def test_idle_time_is_the_stanzas_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"autoscaling_config": {"downscale_delay_s": 7}}
    scaling = options(table, idle_s=120)["autoscaling_config"]
    assert (scaling["downscale_delay_s"], scaling["downscale_to_zero_delay_s"]) == (7, 120)
    monkeypatch.setenv(IDLE_VARIABLE, "3")
    scaling = options(table, idle_s=120)["autoscaling_config"]
    assert (scaling["downscale_delay_s"], scaling["downscale_to_zero_delay_s"]) == (3, 3)


def test_relative_interpreter_is_one_of_the_repository() -> None:
    one = model({"ray_actor_options": {"runtime_env": {"py_executable": ".venv/qwen/bin/python"}}})
    for _ in range(2):  # the stanza itself stays as it is
        runtime_env = deployment_options(one)["ray_actor_options"]["runtime_env"]
        assert runtime_env["py_executable"] == str(ROOT / ".venv/qwen/bin/python")
    assert one.serving
    assert one.serving.deployment["ray_actor_options"]["runtime_env"]["py_executable"] == ".venv/qwen/bin/python"


def test_a_table_changes_what_it_names_and_nothing_else() -> None:
    plain = options(max_ongoing_requests=7)
    assert plain["max_ongoing_requests"] == 7
    assert plain["ray_actor_options"] == {"num_cpus": 1.0, "runtime_env": {}}
    assert plain["autoscaling_config"]["min_replicas"] == 0
    assert "initial_replicas" not in plain["autoscaling_config"], "it scales to zero"
    runtime_env = {"py_executable": "/envs/a/bin/python", "env_vars": {"A": "1"}}
    actor = {"num_gpus": 1, "runtime_env": runtime_env}
    table = {"autoscaling_config": {"max_replicas": 4}, "ray_actor_options": actor, "health_check_period_s": 60}
    changed = options(table, max_ongoing_requests=7)
    policy = {"policy": changed["autoscaling_config"]["policy"]}
    assert changed["autoscaling_config"] == plain["autoscaling_config"] | {"max_replicas": 4} | policy
    assert changed["ray_actor_options"] == plain["ray_actor_options"] | actor
    assert changed["health_check_period_s"] == 60
    assert changed["graceful_shutdown_timeout_s"] == 15 * 60, "as long as the longest call"
    assert changed.keys() == plain.keys()
    assert all(changed[key] == plain[key] for key in plain if key.endswith("timeout_s"))


def test_every_autoscaling_field_of_ray_can_be_set() -> None:
    assert SCALING.keys() == AutoscalingConfig.model_fields.keys()
    assert options({"autoscaling_config": SCALING})["autoscaling_config"] == SCALING


def test_tables_are_merged_at_every_depth_and_lists_are_replaced() -> None:
    defaults = {"a": {"b": {"c": 1, "d": 2}, "e": [1, 2]}, "f": 3}
    expected = {"a": {"b": {"c": 4, "d": 2}, "e": [5]}, "f": 3, "g": {"h": 6}}
    assert merged(defaults, {"a": {"b": {"c": 4}, "e": [5]}, "g": {"h": 6}}) == expected
    assert defaults == {"a": {"b": {"c": 1, "d": 2}, "e": [1, 2]}, "f": 3}


def test_tensor_parallel_over_two_gpus_can_be_said() -> None:
    table = {
        "placement_group_bundles": [{"CPU": 1, "GPU": 1}, {"GPU": 1}],
        "placement_group_strategy": "STRICT_PACK",
        "ray_actor_options": {"accelerator_type": "H100"},
    }
    one = model(table, options={"engine": {"tensor_parallel_size": 2}})
    found = deployment_options(one)
    assert found["placement_group_bundles"] == table["placement_group_bundles"]
    assert found["placement_group_strategy"] == "STRICT_PACK"
    assert found["ray_actor_options"]["accelerator_type"] == "H100"
    assert one.serving
    assert one.serving.on_gpu
    assert one.serving.options["engine"] == {"tensor_parallel_size": 2}


def test_an_engine_is_on_a_gpu_where_it_gets_one() -> None:
    without: list[dict[str, Any]] = [{}, {"ray_actor_options": {"num_cpus": 4}}, {"ray_actor_options": {"num_gpus": 0}}]
    without += [{"placement_group_bundles": [{"CPU": 1}, {"CPU": 1, "GPU": 0}]}]
    on_one: list[dict[str, Any]] = [{"ray_actor_options": {"num_gpus": 0.15}}]
    on_one += [{"placement_group_bundles": [{"CPU": 1}, {"GPU": 1}]}]
    for table in (*without, *on_one):
        options(table)
        serving = model(table).serving
        assert serving
        assert serving.on_gpu is (table in on_one), table


def test_an_unknown_key_is_refused_by_its_name() -> None:
    tables: dict[str, dict[str, Any]] = {
        "max_replica_per_node": {"max_replica_per_node": 3},
        "autoscaling_config.min_replica": {"autoscaling_config": {"min_replica": 1}},
        "autoscaling_config.policy.function": {"autoscaling_config": {"policy": {"function": "a:b"}}},
        "ray_actor_options.num_cpu": {"ray_actor_options": {"num_cpu": 1}},
        "ray_actor_options.runtime_env.python": {"ray_actor_options": {"runtime_env": {"python": "a"}}},
        "logging_config.level": {"logging_config": {"level": "DEBUG"}},
    }
    sentences = {key: refusal(table) for key, table in tables.items()}
    assert [key for key, sentence in sentences.items() if f"`{key}` is no option of Ray" not in sentence] == []
    sentences = {key: refusal({key: 1}) for key in NOT_HERE}
    reasons = {key: f"`{key}` cannot be set here: {reason}" for key, reason in NOT_HERE.items()}
    assert [key for key, sentence in sentences.items() if reasons[key] not in sentence] == []


WRONG_TYPES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"autoscaling_config": 3}, "autoscaling_config"),
    ({"autoscaling_config": {"min_replicas": "1"}}, "autoscaling_config.min_replicas"),
    ({"autoscaling_config": {"min_replicas": 1.5}}, "autoscaling_config.min_replicas"),
    ({"autoscaling_config": {"min_replicas": 2}}, "autoscaling_config"),
    ({"autoscaling_config": {"aggregation_function": "moon"}}, "autoscaling_config.aggregation_function"),
    ({"autoscaling_config": {"policy": {"policy_function": "moon:x"}}}, "autoscaling_config.policy"),
    ({"ray_actor_options": []}, "ray_actor_options"),
    ({"ray_actor_options": {"num_gpus": "1"}}, "ray_actor_options.num_gpus"),
    ({"ray_actor_options": {"num_cpus": -1}}, "ray_actor_options.num_cpus"),
    ({"ray_actor_options": {"accelerator_type": 100}}, "ray_actor_options.accelerator_type"),
    ({"ray_actor_options": {"resources": {"fpga": "1"}}}, "ray_actor_options.resources.fpga"),
    ({"ray_actor_options": {"runtime_env": "a"}}, "ray_actor_options.runtime_env"),
    ({"ray_actor_options": {"runtime_env": {"py_executable": 3}}}, "ray_actor_options.runtime_env.py_executable"),
    ({"ray_actor_options": {"runtime_env": {"env_vars": {"A": 1}}}}, "ray_actor_options.runtime_env"),
    ({"placement_group_bundles": [{"CPU": 1}, {"GPU": "1"}]}, "placement_group_bundles.1.GPU"),
    ({"graceful_shutdown_timeout_s": True}, "graceful_shutdown_timeout_s"),
    ({"health_check_period_s": 0}, "health_check_period_s"),
    ({"max_replicas_per_node": 2.5}, "max_replicas_per_node"),
)
"""Tables, and the key that is refused."""

CONFLICTS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"placement_group_strategy": "PACK"}, "placement_group_bundles"),
    ({"placement_group_bundles": [{"CPU": 1}], "placement_group_strategy": "MOON"}, "MOON"),
    ({"placement_group_bundles": [{"GPU": 1}]}, "num_cpus"),
    ({"placement_group_bundles": [{"CPU": 1}], "max_replicas_per_node": 1}, "max_replicas_per_node"),
    ({"max_replicas_per_node": 300}, "max_replicas_per_node"),
)
"""Tables whose keys do not fit together, and a word of the refusal."""


def test_a_value_of_another_type_is_refused_by_the_name_of_its_key() -> None:
    for table, key in WRONG_TYPES:
        assert re.search(rf"`deployment`: `{re.escape(key)}`(: | must be )", refusal(table)), table


def test_what_does_not_fit_together_is_refused() -> None:
    for table, word in CONFLICTS:
        assert word in refusal(table), table
