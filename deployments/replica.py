"""What every model replica has in common. Rules live in `contract`, computing in `models`; a replica holds both."""

from __future__ import annotations

import logging
import time
from typing import Any

from contract.catalog import Model
from deployments.loopback import keep_replica_port_local

log = logging.getLogger("parlance.replica")


class Replica:
    """Loads the adapter that the model's stanza names.

    The constructor blocks until the model can answer, so that a running replica is a warm one.
    """

    def __init__(self, model: Model) -> None:
        import models

        keep_replica_port_local()
        started = time.perf_counter()
        self.model = model
        self.adapter: Any = models.load(model)
        self.load_s = time.perf_counter() - started
        log.info("%s loaded in %.1f s", model.id, self.load_s)

    async def warm(self) -> float:
        """Does nothing but exist: a queued call wakes an engine at zero. Returns the seconds that loading took."""
        return self.load_s

    async def check_health(self) -> None:
        """Called by Serve; raises when the engine is dead or makes no progress."""
        await self.adapter.check_health()

    def __del__(self) -> None:
        if adapter := getattr(self, "adapter", None):
            adapter.close()
