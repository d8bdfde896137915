"""A closed loop over what makes sound, in its own process. It needs no library: environments of peers run it, too."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable


async def sound_loop(speak: Callable[[], AsyncIterator[float]], streams: int, seconds: float) -> dict[str, object]:
    """All streams at once, each sentence after sentence until the time is over; first runs are left out.

    `speak` says the sentence once and yields, at each piece of sound, its seconds so far. Returns seconds until the
    first sound and until the whole of each sentence, in all, and of sound.
    """
    first_s: list[float] = []
    whole_s: list[float] = []
    sound_s = 0.0

    async def stream(until_s: float) -> None:
        nonlocal sound_s
        while True:
            started_s, is_first = time.perf_counter(), True
            async for made_s in speak():
                sound_s = made_s
                if is_first:
                    first_s.append(time.perf_counter() - started_s)
                is_first = False
            whole_s.append(time.perf_counter() - started_s)
            if time.perf_counter() >= until_s:
                return

    await asyncio.gather(*(stream(0.0) for _ in range(streams)))
    first_s.clear()
    whole_s.clear()
    started_s = time.perf_counter()
    await asyncio.gather(*(stream(started_s + seconds) for _ in range(streams)))
    elapsed_s = time.perf_counter() - started_s
    return {"first_s": first_s, "whole_s": whole_s, "elapsed_s": elapsed_s, "sound_s": sound_s}
