"""The graph is refused as a whole, before anything starts, by a sentence that names stanza and key."""

from __future__ import annotations

from typing import Any

import pytest
import ray

import configs
from autoscaling.deployment import DeploymentTableError
from deployments.ingress.deployment import IngressArgs
from graph import wire
from models.options import OptionsError
from tests.launch.test_faults import changed


@pytest.mark.parametrize("profile", ["embedded", "production", "twins"])
def test_every_profile_can_be_wired(profile: str) -> None:
    wire(configs.load(profile), IngressArgs())
    assert not ray.is_initialized()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"enginee": {}}, "`options.enginee`: there is no such option"),
        ({"engine": {"max_num_seq": 4}}, "vLLM has no engine argument `max_num_seq`; did you mean `max_num_seqs`?"),
        ({"engine": {"max_num_seqs": "4"}}, "engine argument `max_num_seqs` must be"),
        ({"chat_template": "nowhere.jinja"}, "there is no template `nowhere.jinja`"),
    ],
)
def test_an_option_at_fault_stops_the_start(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionsError) as caught:
        wire(changed(options=options), IngressArgs())
    assert str(caught.value).startswith("chat.toml [smollm2-135m-instruct.serving]")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"ray_actor_option": {}}, "`ray_actor_option`"),
        ({"ray_actor_options": {"num_cpu": 1}}, "`ray_actor_options.num_cpu`"),
        ({"autoscaling_config": {"max_replicas": "many"}}, "autoscaling_config"),
        ({"num_replicas": 2}, "`num_replicas` cannot be set here"),
    ],
)
def test_a_deployment_table_at_fault_stops_the_start(table: dict[str, Any], says: str) -> None:
    with pytest.raises(DeploymentTableError) as caught:
        wire(changed(deployment=table), IngressArgs())
    assert "chat.toml [smollm2-135m-instruct]" in str(caught.value)
    assert says in str(caught.value)
