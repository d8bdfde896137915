"""The work on drafts of voices: one call of a designer each, in whichever ingress process has the draft.

    enqueue(draft_id)    works on it in the background, if no other process does
    cancel(draft_id)       ends that work
    start, close         looks for drafts of dead processes; gives back what this one has

    claim -> call the designer -> store clip and sample -> ready and billed, in one transaction -> adopt, if so ordered

A process that dies leaves a lease that ends, and the next one begins again. No client waits here and none can end the
work by leaving. What an engine answers that it may answer otherwise later is asked again, until the draft expires.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

from autoscaling.engine import CallContext, Engine, Timings, owner_name
from concurrency.background import in_background, supervised
from contract.catalog import Catalog
from contract.errors import (
    BUSY,
    ENGINE_FAILED,
    PROVIDER_BUSY,
    STATE_UNAVAILABLE,
    UPSTREAM_ERROR,
    UPSTREAM_TIMEOUT,
    WARMING_UP,
    ApiError,
    without_text,
)
from contract.speech.engine import SpeechJob
from contract.voice_design.engine import DesignResult
from deployments.ingress.verifier import verified_design, verifier_for, wav
from state import State
from state.drafts import Adoption, DesignedVoice, Draft, DraftClaim

T = TypeVar("T")
log = logging.getLogger(f"parlance.{__name__}")

AT_ONCE = 32
"""Drafts that a process works on; the others wait for it, or for another process."""

POLL_S = 5.0
"""Seconds between two queries for drafts that wait."""

RENEW_S = 5.0
"""Seconds between two renewals of a lease."""

CANCEL_WAIT_S = 2.0
"""Seconds that a client who discards a draft waits for the end of the work."""

PAUSE_S = 1.0
MAX_PAUSE_S = 15.0
"""Seconds before the same is tried again, at first and at most."""

TRIES = 3
"""Attempts after which a draft that kills its designer, or makes it raise, has failed."""

LATER = frozenset({BUSY, PROVIDER_BUSY, WARMING_UP, ENGINE_FAILED, STATE_UNAVAILABLE})
"""Faults that say nothing about the draft."""
COUNTED = frozenset({UPSTREAM_ERROR, UPSTREAM_TIMEOUT})
"""Faults that may be the draft's own."""

FAILED = "the voice could not be designed; nothing was billed, so you can order it again"


class DraftWorker:
    """The drafts that this process works on.

    Args:
        catalog: has the designers.
        engines: by name of the deployment.
        state: keeps the drafts.
    """

    def __init__(self, catalog: Catalog, engines: Mapping[str, Engine], state: State) -> None:
        self.pause_s = PAUSE_S
        self._catalog = catalog
        self._engines = engines
        self._state = state
        self._working: dict[str, asyncio.Task[None]] = {}
        self._polling: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Looks for drafts that wait, from now on."""
        self._polling = supervised("look for drafts", self.poll, every_s=POLL_S)

    async def close(self) -> None:
        """Ends all work; other processes may go on with it at once."""
        tasks = [*self._working.values(), *([self._polling] if self._polling else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def enqueue(self, draft_id: str) -> None:
        """Does what there is to do for a draft, in the background; nothing if this process does so or has enough."""
        if draft_id in self._working or len(self._working) >= AT_ONCE:
            return
        self._working[draft_id] = task = in_background(self._work(draft_id))
        task.add_done_callback(lambda _: self._working.pop(draft_id, None))

    async def cancel(self, draft_id: str) -> None:
        """Ends the work of this process on a draft that was discarded; what it took is billed by then, as a rule."""
        if task := self._working.get(draft_id):
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_WAIT_S)

    async def poll(self) -> None:
        """Takes up what waits, as far as this process has room."""
        for draft_id in await self._state.drafts.waiting(AT_ONCE - len(self._working)):
            self.enqueue(draft_id)

    def adoption(self, draft: Draft, slug: str | None = None, label: str | None = None) -> Adoption:
        """Makes `draft` a voice of this server."""
        provider = self._catalog.voice_design[draft.model].provider
        return Adoption(provider, frozenset(self._catalog.voices), slug, label)

    async def _work(self, draft_id: str) -> None:
        try:
            if lease := await self._state.drafts.claim(draft_id):
                timings = Timings()
                try:
                    async with self._leased(lease):
                        await self._make(lease, timings)
                finally:
                    await asyncio.shield(self._settle_discarded(lease.draft, timings))
            await self._adopt_if_ordered(draft_id)
        except Exception as error:
            # Whatever it was, the draft is taken up again once its lease has ended, or expires.
            log.error("the work on a draft ended early: %s", without_text(error))

    @asynccontextmanager
    async def _leased(self, lease: DraftClaim) -> AsyncIterator[None]:
        """Renews the lease; ends the block where the draft was discarded or taken over. Gives the lease back."""
        working = asyncio.current_task()
        assert working is not None

        async def renew() -> None:
            if not await self._state.drafts.renew(lease):
                working.cancel()

        renewing = supervised("renew the lease of a draft", renew, every_s=RENEW_S)
        try:
            yield
        finally:
            renewing.cancel()
            await self._state.drafts.release(lease)

    async def _make(self, lease: DraftClaim, timings: Timings) -> None:
        """The draft is ready, or has failed for good, or has expired."""
        try:
            async with asyncio.timeout(lease.draft.expires_at - self._state.clock()) as rest:
                designed = await self._with_retries(lease, lambda: self._design(lease.draft, timings))
                await self._with_retries(lease, lambda: self._keep(lease, designed))
        except TimeoutError:
            if not rest.expired():
                raise
            await self._state.drafts.expire()
        except Exception as error:
            # Also of our own: tried again, it would happen again.
            log.warning("a draft failed: %s", error if isinstance(error, ApiError) else without_text(error))
            await self._state.drafts.fail(lease, FAILED)

    async def _with_retries(self, lease: DraftClaim, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, tried again while there is hope. Raises the ApiError that ends it."""
        pause_s = self.pause_s
        while True:
            try:
                try:
                    return await work()
                except ApiError as error:
                    if error.fault not in COUNTED or await self._state.drafts.count_failure(lease) >= TRIES:
                        raise
            except ApiError as error:  # of the work, or of the database that was to count it
                if error.fault not in LATER:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _design(self, draft: Draft, timings: Timings) -> DesignResult:
        """One try; `timings` say how long it took if it is the last one, and no failure."""
        model = self._catalog.voice_design[draft.model]
        job = draft.spec.job(self._catalog.sentences[draft.spec.language], model.max_attempts)
        timings.engine = 0.0
        try:
            engine, context = self._engines[model.deployment], CallContext(owner_name(draft.org_id), timings)
            listeners = [model for model in self._catalog.transcription.values() if model.serving]
            verifier = verifier_for(listeners, self._engines, model.runtime, SpeechJob(job.text, job.language))
            return await verified_design(engine, job, context, verifier)
        except ApiError:
            timings.was_sent = False
            raise

    async def _settle_discarded(self, draft: Draft, timings: Timings) -> None:
        """Bills the work that a designer had begun to the caller that discards the draft."""
        spent_ms = math.ceil(timings.engine * 1000) if timings.was_sent else 0
        cost = self._catalog.voice_design[draft.model].cost_micro_eur(synthesis_ms=spent_ms)
        await self._state.drafts.settle_discarded(draft, cost, spent_ms)

    async def _keep(self, lease: DraftClaim, designed: DesignResult) -> None:
        """Bytes first: a draft that is ready has them."""
        drafts, blobs, model = self._state.drafts, self._state.blobs, self._catalog.voice_design[lease.draft.model]
        sentence = self._catalog.sentences[lease.draft.spec.language]
        artifacts = DesignedVoice.of(designed, lease.folder, sentence, model.runtime)
        await blobs.put(artifacts.clip_blob, wav(designed.clip))
        await blobs.put(artifacts.sample_blob, designed.sample)
        if await drafts.finish(lease, artifacts, model.cost_micro_eur(synthesis_ms=artifacts.synthesis_ms)) is None:
            # The answer to an earlier commit may have been lost: these are then the bytes of a draft that is billed.
            draft = await drafts.read(lease.draft.id)
            if draft is None or draft.designed is None or draft.designed.clip_blob != artifacts.clip_blob:
                await blobs.delete_all(lease.folder)

    async def _adopt_if_ordered(self, draft_id: str) -> None:
        drafts = self._state.drafts
        draft = await drafts.read(draft_id)
        if draft is None or draft.state != "ready" or draft.work_at is None:
            return
        try:
            await drafts.adopt(draft.org_id, draft.id, self.adoption(draft))
        except ApiError as error:
            if error.fault is STATE_UNAVAILABLE:
                raise
            await drafts.refuse(draft.id, f"not adopted: {error.message}")
