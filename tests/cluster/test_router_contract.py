"""What `autoscaling.router` takes from Ray beyond its public interface. An upgrade that breaks it must fail here."""

from __future__ import annotations

import inspect

import ray
from ray.serve._private.router import AsyncioRouter, CurrentLoopRouter, RouterMetricsManager
from ray.serve.request_router import PendingRequest, RequestRouter


def test_ray_is_the_version_that_the_router_was_written_against() -> None:
    assert ray.__version__.startswith("2.60.")


def test_private_removal_takes_a_pending_request() -> None:
    parameters = inspect.signature(RequestRouter._remove_pending_request_from_indices).parameters
    assert list(parameters) == ["self", "pending_request"]


def test_pending_request_has_a_future() -> None:
    assert "future" in PendingRequest.__dataclass_fields__


def test_router_tells_replicas_and_their_slots() -> None:
    assert isinstance(inspect.getattr_static(RequestRouter, "curr_replicas"), property)
    assert isinstance(inspect.getattr_static(RequestRouter, "replica_queue_len_cache"), property)


def test_a_handle_counts_and_reports_what_waits_by_these_names() -> None:
    """What `autoscaling.report` calls."""
    made = inspect.getsource(CurrentLoopRouter.__init__) + inspect.getsource(AsyncioRouter.__init__)
    assert "self._asyncio_router = AsyncioRouter(" in made
    assert "self._metrics_manager = RouterMetricsManager(" in made
    assert isinstance(inspect.getattr_static(RouterMetricsManager, "autoscaling_config"), property)
    reports = ("_add_autoscaling_metrics_point", "push_autoscaling_metrics_to_controller")
    for name in (*reports, "inc_num_queued_requests", "dec_num_queued_requests"):
        assert list(inspect.signature(getattr(RouterMetricsManager, name)).parameters) == ["self"]
    assert "QUEUED_REQUESTS_KEY: self.num_queued_requests" in inspect.getsource(RouterMetricsManager)


def test_serve_still_reports_what_it_counted_before_the_call() -> None:
    """Once it does not, `autoscaling.report` can go."""
    source = inspect.getsource(RouterMetricsManager.wrap_queued_request)
    assert "push_autoscaling_metrics_to_controller" in source
    assert "_add_autoscaling_metrics_point" not in source
