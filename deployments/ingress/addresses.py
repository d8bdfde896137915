"""Signed addresses of bytes: of this server, or of a store that serves its own. Design 7.7."""

from __future__ import annotations

import time

from contract.speech.voices import SAMPLE_ADDRESS_S
from deployments.ingress.admission import Admitted


async def signed_address(admitted: Admitted, name: str) -> str:
    """An address that plays the blob `name` for an hour, without a key."""
    state = admitted.context.service.state
    if elsewhere := await state.blobs.presign(name, "GET", SAMPLE_ADDRESS_S):
        return elsewhere
    query = state.signatures.sign(name, int(time.time()) + SAMPLE_ADDRESS_S, "GET")
    return f"{str(admitted.request.base_url).rstrip('/')}/files/{name}?{query}"
