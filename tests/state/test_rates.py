import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from contract.access import TARIFFS, Caller, RateOwner, Scope
from contract.errors import ApiError
from contract.limits import KEYLESS_REQUESTS
from state import rates as rates_module
from state.rates import LocalWindows, Rates, whole_reset_s
from tests.state.books import refusal
from tests.state.servers import Redis
from tests.waiting import ManualClock, until

Open = Callable[..., Rates]


def caller(requests_per_minute: int = 10, key_id: str = "k3Jd92Xa", streams: int = 4) -> Caller:
    plan = replace(TARIFFS["pro"], requests_per_minute=requests_per_minute, concurrent_streams=streams)
    return Caller(1, "acme", key_id, plan, frozenset(Scope))


async def allowed(rates: Rates, of: Caller, count: int) -> int:
    return sum([(await rates.hit(of)).allowed for _ in range(count)])


@pytest.fixture
async def open_rates(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """Makes limits and closes them. A slow machine must not look like a Redis that is away."""
    monkeypatch.setattr(rates_module, "REDIS_TIMEOUT_S", 10.0)
    opened: list[Rates] = []

    def make(redis_url: str | None = None, **options: int) -> Rates:
        opened.append(Rates(redis_url, **options))
        return opened[-1]

    yield make
    for rates in opened:
        await rates.close()


@pytest.fixture(params=["memory", "redis"])
def url(request: pytest.FixtureRequest) -> str | None:
    """Where the counters are: None is the memory of the process."""
    return request.getfixturevalue("redis").url if request.param == "redis" else None


@pytest.mark.usefixtures("one_window")
async def test_exactly_the_limit_of_each_key_passes(open_rates: Open, url: str | None) -> None:
    rates, of = open_rates(url), caller(10, key_id="exact")
    verdicts = [await rates.hit(of) for _ in range(12)]
    assert [v.allowed for v in verdicts] == [True] * 10 + [False] * 2
    assert [v.remaining for v in verdicts] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]
    assert {v.limit for v in verdicts} == {10}
    assert all(1 <= v.reset_s <= 60 for v in verdicts)
    at_once = await asyncio.gather(*(rates.hit(caller(10, key_id="burst")) for _ in range(50)))
    assert sum(v.allowed for v in at_once) == 10


@pytest.mark.usefixtures("one_window")
async def test_addresses_are_counted_by_themselves(open_rates: Open, url: str | None) -> None:
    rates = open_rates(url)
    for address in ("192.0.2.9", "2001:db8::/64"):
        passed = [(await rates.hit_address(address)).allowed for _ in range(KEYLESS_REQUESTS + 2)]
        assert passed == [True] * KEYLESS_REQUESTS + [False] * 2
        assert (await rates.hit(caller(10, key_id=address))).allowed


async def test_two_replicas_share_one_limit_in_redis(open_rates: Open, redis: Redis) -> None:
    first, second = open_rates(redis.url, replicas=2), open_rates(redis.url, replicas=2)
    of = caller(10, "shared")
    assert await allowed(first, of, 6) + await allowed(second, of, 6) == 10


async def test_without_redis_each_replica_allows_its_share_and_comes_back(
    open_rates: Open, redis: Redis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates_module, "REDIS_PAUSE_S", 0.05)
    rates, of = open_rates(redis.url, replicas=2), caller(10, "alone")
    assert await allowed(rates, of, 2) == 2
    async with rates.stream(of):
        redis.stop()
        try:
            assert await allowed(rates, of, 20) == 5
            assert rates.fallbacks == 20
            assert "Redis does not answer" in caplog.text
            async with rates.stream(of):
                await refusal(rates.stream(of).__aenter__())
        finally:
            redis.restart()

    async def counted_in_redis() -> bool:
        before = rates.fallbacks
        return (await rates.hit(of)).limit == 10 and rates.fallbacks == before

    await until(counted_in_redis)


async def test_streams_of_a_key_are_bounded_and_given_back(open_rates: Open) -> None:
    rates, of = open_rates(), caller(streams=2)
    async with rates.stream(of), rates.stream(of):
        error = await refusal(rates.stream(of).__aenter__())
        assert (error.fault.name, error.retry_after_s) == ("RATE_LIMIT_EXCEEDED", 1)
        async with rates.stream(caller(key_id="other")):
            pass
    with pytest.raises(ZeroDivisionError):
        async with rates.stream(of):
            raise ZeroDivisionError
    async with rates.stream(of), rates.stream(of):
        pass
    assert rates.open_streams == 0


@pytest.mark.parametrize(("streams", "replicas", "share"), [(50, 4, 12), (4, 8, 1), (4, 1, 4)])
async def test_each_replica_has_its_share_of_streams(open_rates: Open, streams: int, replicas: int, share: int) -> None:
    rates, of = open_rates(replicas=replicas), caller(streams=streams)
    async with AsyncExitStack() as stack:
        for _ in range(share):
            await stack.enter_async_context(rates.stream(of))
        await refusal(rates.stream(of).__aenter__())


async def test_streams_of_a_key_are_counted_over_all_replicas(open_rates: Open, redis: Redis) -> None:
    one, other = (open_rates(redis.url, replicas=2) for _ in range(2))
    of = caller(key_id="streams", streams=4)
    async with AsyncExitStack() as stack:
        for _ in range(3):  # all of them on one replica: its share would be two
            await stack.enter_async_context(one.stream(of))
        await stack.enter_async_context(other.stream(of))
        await refusal(other.stream(of).__aenter__())
    async with other.stream(of), other.stream(of), other.stream(of), one.stream(of):
        pass


async def test_streams_of_a_replica_that_died_are_free_when_their_lease_ends(
    open_rates: Open, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state.shared_streams.LEASE_S", 2)
    dead, alive = open_rates(redis.url, replicas=2), open_rates(redis.url, replicas=2)
    of = caller(key_id="lease", streams=1)
    held = dead.stream(of)
    await held.__aenter__()
    await refusal(alive.stream(of).__aenter__())

    async def is_free() -> bool:
        try:
            async with alive.stream(of):
                return True
        except ApiError:
            return False

    await until(is_free)


async def test_open_stream_is_renewed(open_rates: Open, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    rates, of = open_rates(redis.url, replicas=2), caller(key_id="renewed", streams=1)
    async with rates.stream(of):
        connection = rates.connection
        before = (await connection.zrange("parlance:streams:renewed", 0, -1, withscores=True))[0][1]
        monkeypatch.setattr("state.shared_streams.LEASE_S", 1000)
        await rates.renew()
        assert (await connection.zrange("parlance:streams:renewed", 0, -1, withscores=True))[0][1] > before + 800


async def test_a_stream_that_ends_while_leases_are_renewed_gives_its_place_back(open_rates: Open, redis: Redis) -> None:
    rates, of = open_rates(redis.url, replicas=2), caller(key_id="ended", streams=2)
    streams: Any = rates._shared_streams
    async with AsyncExitStack() as ending, rates.stream(of):
        await ending.enter_async_context(rates.stream(of))
        renew = streams._renew

        async def late(**about: Any) -> None:
            await ending.aclose()
            await renew(**about)

        streams._renew = late
        await rates.renew()
        assert await rates.connection.zcard("parlance:streams:ended") == 1


async def test_streams_refused_after_redis_forgot_what_is_open_take_no_place_for_ever(
    open_rates: Open, redis: Redis
) -> None:
    rates, of = open_rates(redis.url, replicas=2), caller(key_id="forgotten", streams=2)
    async with rates.stream(of), rates.stream(of):
        await rates.connection.flushall()
        for _ in range(2):
            await refusal(rates.stream(of).__aenter__())
    await rates.renew()
    async with rates.stream(of):
        pass


async def test_old_counters_are_swept(open_rates: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, rates = ManualClock(0), open_rates()
    monkeypatch.setattr(rates_module, "time", clock)
    for number in range(100):
        await rates.hit(caller(key_id=f"key-{number}"))
    clock.now_s += 1000
    await rates.hit(caller())
    assert len(rates._local) == 1


@given(st.lists(st.tuples(st.floats(0, 90), st.sampled_from(["one", "two"])), max_size=60), st.integers(1, 7))
def test_in_memory_it_counts_as_the_library_does(steps: list[tuple[float, str]], limit: int) -> None:
    clock, window = ManualClock(0), RateLimitItemPerSecond(limit, 60)
    clock.now_s = 6_000_000.0  # near zero the library takes the present window for the one before as well
    with pytest.MonkeyPatch.context() as patch:
        for module in ("limits.storage.memory", "limits.strategies", "state.rates"):
            patch.setattr(f"{module}.time", clock)
        ours, theirs = LocalWindows(60), SlidingWindowCounterRateLimiter(MemoryStorage())
        for later_s, who in steps:
            clock.now_s += later_s
            verdict, is_allowed = ours.hit(who, limit), theirs.hit(window, who)
            stats = theirs.get_window_stats(window, who)
            assert (verdict.allowed, verdict.remaining) == (is_allowed, stats.remaining)
            # Moments of this size have no more than microseconds, and a whole second may fall on either side.
            assert abs(verdict.reset_s - whole_reset_s(stats.reset_time - clock.now_s, 60)) <= 1


def derived(of: Caller, name: str, requests: int, streams: int) -> Caller:
    """The same by a credential that its key has issued; all of these share 6 requests and 2 streams."""
    return replace(of, derived=(RateOwner(name, requests, streams), RateOwner(f"issued by {of.key_id}", 6, 2)))


@pytest.mark.usefixtures("one_window")
async def test_a_derived_credential_has_a_rate_of_its_own_below_its_key(open_rates: Open, url: str | None) -> None:
    rates, of = open_rates(url), caller(10, "issuer")
    one, two = (derived(of, name, 4, 1) for name in ("secret-1", "secret-2"))
    assert await allowed(rates, one, 5) == 4
    assert await allowed(rates, two, 5) == 2
    assert await allowed(rates, of, 10) == 4
    assert not (await rates.hit(two)).allowed
    three = derived(caller(1, "small"), "secret-3", 4, 1)
    assert await allowed(rates, three, 3) == 1
    large = replace(caller(10, "large"), derived=three.derived)
    assert await allowed(rates, large, 5) == 3, "what its key refused has not counted"


async def test_a_derived_credential_has_streams_of_its_own_below_its_key(open_rates: Open, url: str | None) -> None:
    rates, of = open_rates(url), caller(10, "streaming", streams=4)
    one, two, three = (derived(of, name, 4, 1) for name in ("secret-a", "secret-b", "secret-c"))
    async with AsyncExitStack() as streams:
        for credential in (one, two):
            await streams.enter_async_context(rates.stream(credential))
        for credential in (one, three):
            with pytest.raises(ApiError, match="close one first"):
                await streams.enter_async_context(rates.stream(credential))
        for _ in range(2):
            await streams.enter_async_context(rates.stream(of))
        assert rates.open_streams == 4
        with pytest.raises(ApiError, match="close one first"):
            await streams.enter_async_context(rates.stream(of))
    assert rates.open_streams == 0
    async with rates.stream(three):
        pass
