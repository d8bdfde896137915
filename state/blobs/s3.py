"""Bytes in an S3-compatible store, through `obstore`."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable
from datetime import timedelta
from typing import Any

from contract.errors import STATE_UNAVAILABLE, ApiError
from state.blobs.base import CHUNK_BYTES, Blob, checked

log = logging.getLogger(f"parlance.{__name__}")

OPTIONS = {"connect_timeout": "5s", "timeout": "300s"}
"""`timeout` covers a whole transfer, and a client may read a large recording slowly."""

RETRY = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}

PARTS_UNDER_WAY = 2
"""Concurrent parts of an upload, 5 MiB each: an upload of any length needs constant memory."""


class S3Blobs:
    """A bucket, or the part of it that begins with `prefix`. Reads AWS_ENDPOINT_URL, AWS_REGION, AWS_ALLOW_HTTP, ..."""

    def __init__(self, bucket: str, prefix: str) -> None:
        import obstore
        from obstore.store import S3Store

        self._obstore = obstore
        # Explicit options replace those of the environment.
        options = OPTIONS | {"allow_http": os.environ.get("AWS_ALLOW_HTTP", "false")}
        self._store = S3Store(bucket, prefix=prefix or None, client_options=options, retry_config=RETRY)

    async def put(self, name: str, data: bytes | AsyncIterable[bytes]) -> int:
        source = _Counted(data)
        body = data if isinstance(data, bytes) else source
        try:
            await _safe(self._obstore.put_async(self._store, checked(name), body, max_concurrency=PARTS_UNDER_WAY))
        except ApiError as error:
            raise source.error or error from None
        return len(data) if isinstance(data, bytes) else source.size_bytes

    async def free_bytes(self) -> float:
        """Without end: how much a bucket takes is its owner's to say."""
        return math.inf

    async def find(self, name: str) -> bytes | None:
        blob = await self.stream(name)
        return None if blob is None else b"".join([chunk async for chunk in blob.chunks])

    async def stream(self, name: str) -> Blob | None:
        try:
            reply = await _safe(self._obstore.get_async(self._store, checked(name)))
        except FileNotFoundError:
            return None
        return Blob(reply.meta["size"], _chunks(reply))

    async def exists(self, name: str) -> bool:
        try:
            await _safe(self._obstore.head_async(self._store, checked(name)))
        except FileNotFoundError:
            return False
        return True

    async def delete(self, name: str) -> None:
        await _safe(self._obstore.delete_async(self._store, checked(name)))

    async def delete_all(self, folder: str) -> None:
        listing = await _safe(self._obstore.list(self._store, prefix=checked(folder)).collect_async())
        if names := [item["path"] for item in listing]:
            await _safe(self._obstore.delete_async(self._store, names))

    async def drop_unfinished(self) -> None:
        """Nothing: a rule of the bucket ends multipart uploads that were never completed."""

    async def address(self, name: str, valid_s: int) -> str:
        signing = self._obstore.sign_async(self._store, "GET", checked(name), timedelta(seconds=valid_s))
        address: str = await _safe(signing)
        return address

    async def presign(self, name: str, valid_s: int) -> str | None:
        return await self.address(name, valid_s)


class _Counted:
    """Chunks on their way to the store, counted; keeps the exception of their source, which the store swallows."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.size_bytes = 0
        self.error: Exception | None = None

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in self._source:
                self.size_bytes += len(chunk)
                yield chunk
        except Exception as error:
            self.error = error
            raise


async def _chunks(reply: Any) -> AsyncGenerator[bytes, None]:
    source = aiter(reply.stream(min_chunk_size=CHUNK_BYTES))
    while (chunk := await _safe(anext(source, None))) is not None:
        yield bytes(chunk)


async def _safe(call: Awaitable[Any]) -> Any:
    """The result of `call`. Raises FileNotFoundError, and STATE_UNAVAILABLE for every other failure."""
    try:
        return await call
    except FileNotFoundError:
        raise
    except Exception as error:  # the store's client raises errors of several libraries
        log.error("the file store (S3) failed: %s", type(error).__name__)
        raise STATE_UNAVAILABLE() from None
