"""Bytes of connections, a slice at a time: the protocol gets all of them in order, and others have their turns."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concurrency import slices
from concurrency.allowance import Allowance
from concurrency.slices import SLICE_BYTES, SlicedConnection, SliceQueue


class Network:
    """A transport that remembers whether it is read."""

    def __init__(self) -> None:
        self.is_read, self.is_closed = True, False

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return self.is_closed

    def abort(self) -> None:
        self.is_closed = True

    def write(self, data: bytes) -> None: ...


class Recorder:
    """A protocol that notes what it gets in a list that it shares, and does something at each piece."""

    def __init__(self, notes: list[tuple[str, bytes]], name: str = "", act: Any = lambda connection: None) -> None:
        self._notes, self._name, self._act = notes, name, act

    def connection_made(self, connection: SlicedConnection) -> None:
        self.connection = connection

    def data_received(self, data: bytes) -> None:
        self._notes.append((self._name, data))
        self._act(self.connection)

    def connection_lost(self, exc: Exception | None) -> None:
        self._notes.append((self._name, b"lost"))


Made = tuple[SlicedConnection, Any]


def connected(protocol: Recorder, queue: SliceQueue | None = None) -> Made:
    connection, network = SlicedConnection(protocol, queue or SliceQueue()), Network()
    connection.connection_made(network)  # type: ignore[arg-type]
    return connection, network


async def until_read(network: Any) -> None:
    async with asyncio.timeout(10):
        while not network.is_read:  # noqa: ASYNC110  # each round is one turn of the loop
            await asyncio.sleep(0)


@given(st.lists(st.binary(max_size=3 * SLICE_BYTES), max_size=6), st.integers(0, 12))
def test_all_bytes_come_in_order_however_often_the_protocol_pauses(reads: list[bytes], pauses: int) -> None:
    async def run() -> None:
        notes: list[tuple[str, bytes]] = []
        left = [pauses]

        def act(connection: SlicedConnection) -> None:
            if left[0]:
                left[0] -= 1
                connection.pause_reading()
                asyncio.get_running_loop().call_soon(connection.resume_reading)

        connection, network = connected(Recorder(notes, act=act))
        for data in reads:
            await until_read(network)
            connection.data_received(data)
        await until_read(network)
        assert b"".join(data for _, data in notes) == b"".join(reads)
        assert all(len(data) <= SLICE_BYTES for _, data in notes)

    asyncio.run(run())


@pytest.mark.parametrize(("length", "pieces"), [(SLICE_BYTES - 1, 1), (SLICE_BYTES, 1), (SLICE_BYTES + 1, 2)])
async def test_a_short_read_is_handled_at_once(length: int, pieces: int) -> None:
    notes: list[tuple[str, bytes]] = []
    connection, network = connected(Recorder(notes))
    connection.data_received(bytes(length))
    assert (len(notes), network.is_read) == ((1, True) if pieces == 1 else (0, False))
    await until_read(network)
    assert len(notes) == pieces


async def test_connections_take_turns_and_so_does_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "TURN_S", 1e-9)  # each turn of the loop has time for one slice
    notes: list[tuple[str, bytes]] = []
    queue, loop = SliceQueue(), asyncio.get_running_loop()
    a, network = connected(Recorder(notes, "a", lambda _: loop.call_soon(notes.append, ("other", b""))), queue)
    b, other_network = connected(Recorder(notes, "b"), queue)
    a.data_received(bytes(5 * SLICE_BYTES))
    b.data_received(bytes(2 * SLICE_BYTES))
    await until_read(network)
    await until_read(other_network)
    await asyncio.sleep(0)
    assert "".join(name for name, _ in notes if name != "other") == "ababaaa"
    assert [name for name, _ in notes].index("other") <= 2


async def test_plain_slices_share_a_turn() -> None:
    notes: list[tuple[str, bytes]] = []
    connection, _ = connected(Recorder(notes))
    connection.data_received(bytes(3 * SLICE_BYTES))
    await asyncio.sleep(0)
    assert len(notes) == 3


async def test_a_protocol_that_has_paused_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[tuple[str, bytes]] = []
    connection, network = connected(Recorder(notes, act=lambda connection: connection.pause_reading()))
    connection.data_received(bytes(3 * SLICE_BYTES))
    for _ in range(5):
        await asyncio.sleep(0)
    assert (len(notes), network.is_read) == (1, False)
    assert connection.waiting_bytes >= 2 * SLICE_BYTES
    connection.resume_reading()
    await asyncio.sleep(0)
    assert len(notes) == 2


async def test_what_waits_is_dropped_with_the_connection() -> None:
    notes: list[tuple[str, bytes]] = []
    connection, _ = connected(Recorder(notes))
    connection.data_received(bytes(3 * SLICE_BYTES))
    connection.connection_lost(None)
    await asyncio.sleep(0)
    assert notes == [("", b"lost")]


async def test_another_protocol_gets_the_rest() -> None:
    first: list[tuple[str, bytes]] = []
    second: list[tuple[str, bytes]] = []
    other = Recorder(second)
    connection, network = connected(Recorder(first, act=lambda connection: connection.set_protocol(other)))
    other.connection_made(connection)
    connection.data_received(bytes(3 * SLICE_BYTES))
    await until_read(network)
    assert (len(first), len(second)) == (1, 2)


async def test_a_protocol_that_fails_costs_its_own_connection() -> None:
    failures: list[Any] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()  # of all tests of this loop
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    notes: list[tuple[str, bytes]] = []
    queue = SliceQueue()
    broken, network = connected(Recorder([], act=lambda _: 1 / 0), queue)
    well, other_network = connected(Recorder(notes), queue)
    broken.data_received(bytes(3 * SLICE_BYTES))
    well.data_received(bytes(3 * SLICE_BYTES))
    await until_read(other_network)
    loop.set_exception_handler(before)
    assert (len(failures), network.is_closed, len(notes)) == (1, True, 3)


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 50)), max_size=40))
def test_an_allowance_is_never_used_faster_than_its_rate_and_its_burst(uses: list[tuple[float, float]]) -> None:
    now_s, used = 0.0, 0.0
    allowance = Allowance(10, 100, lambda: now_s)
    for pause_s, units in uses:
        now_s += pause_s
        wait_s = allowance.use(units)
        used += units
        assert used <= 100 + 10 * (now_s + wait_s) + 1e-6
        now_s += wait_s


@pytest.mark.parametrize(("uses", "wait_s"), [(99, 0), (100, 0), (101, 0.1)])
def test_a_burst_is_had_at_once(uses: int, wait_s: float) -> None:
    allowance = Allowance(10, 100, lambda: 7.0)
    assert [allowance.use() for _ in range(uses)][-1] == pytest.approx(wait_s)
