"""Starts the fork server of a node together with the graph, where an engine is woken as soon as the graph is ready.

The server imports on the core that a start leaves idle, so that the first engine is forked as later ones are.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence

from autoscaling.ray_internals.start import OwnNode
from contract.catalog import Model
from deployments.fork_server.enter import AT_ONCE, ROOT, Place, server_command
from deployments.fork_server.plan import commands


def start_server(models: Sequence[Model], woken: str, node: OwnNode) -> None:
    """Starts the server that forks the model with the id `woken`; none where that has an interpreter or GPU of its own.

    `models` are all that are set up. The server ends with the raylet of `node`, and survives a Ctrl-C until then.
    """
    command = next((commands(models).get(model.deployment) for model in models if model.id == woken), None)
    if command is None:
        return
    python, *_, plan = shlex.split(command)
    if python != sys.executable:
        return
    place = Place(plan, node.worker)
    place.make_folder()
    log = place.opened_log()
    subprocess.Popen(
        [*server_command(place, node.worker[0], plan), AT_ONCE],
        cwd=ROOT,
        env=os.environ | node.environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        process_group=0,
    )
    os.close(log)
