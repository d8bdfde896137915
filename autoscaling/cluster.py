"""What Ray knows of machines: how many there are, and what accelerators this one has."""

from __future__ import annotations


def nodes() -> int | None:
    """Machines of the cluster that this process is connected to; None where it is connected to none."""
    import ray

    if not ray.is_initialized():
        return None
    return sum(1 for node in ray.nodes() if node["Alive"])


def gpus_here() -> int:
    """GPUs of this machine as Ray would count them: less those that are hidden from this process."""
    from ray._private.accelerators import get_accelerator_manager_for_resource

    manager = get_accelerator_manager_for_resource("GPU")
    count: int = manager.get_current_node_num_accelerators()
    visible = manager.get_current_process_visible_accelerator_ids()
    return count if visible is None else min(count, len(visible))
