"""POST /embeddings over the real app."""

from __future__ import annotations

import openai
import pytest

from tests.api.conftest import Api

pytestmark = pytest.mark.anyio


async def test_vectors_come_in_the_order_of_the_texts(api: Api) -> None:
    reply = await api.send("POST", "/v1/embeddings", json={"model": "lengths", "input": ["a", "bcd"]})
    assert [item["embedding"] for item in reply.json()["data"]] == [[1.0] * 4, [3.0] * 4]
    assert reply.json()["usage"] == {"prompt_tokens": 4, "total_tokens": 4}


async def test_official_client_asks_for_base64_and_reads_it(api: Api) -> None:
    client = openai.AsyncOpenAI(api_key=api.everything, base_url="http://test/v1", http_client=api.client)
    result = await client.embeddings.create(model="lengths", input="four")
    assert result.data[0].embedding == [4.0] * 4


@pytest.mark.parametrize(("dimensions", "status"), [(0, 400), (1, 200), (4, 200), (5, 400)])
async def test_dimensions_are_honoured_or_refused(api: Api, dimensions: int, status: int) -> None:
    body = {"model": "lengths", "input": "x", "dimensions": dimensions}
    reply = await api.send("POST", "/v1/embeddings", json=body)
    assert reply.status_code == status
    if status == 200:
        assert len(reply.json()["data"][0]["embedding"]) == dimensions
    else:
        assert reply.json()["error"]["param"] == "dimensions"


@pytest.mark.parametrize(("count", "status"), [(0, 400), (1, 200), (2047, 200), (2048, 200), (2049, 400)])
async def test_number_of_inputs(api: Api, count: int, status: int) -> None:
    reply = await api.send("POST", "/v1/embeddings", json={"model": "lengths", "input": ["x"] * count})
    assert reply.status_code == status


@pytest.mark.parametrize("input_", [[[1, 2]], [1], "", [""], {"a": 1}, None, 7])
async def test_input_that_is_no_text_is_400(api: Api, input_: object) -> None:
    reply = await api.send("POST", "/v1/embeddings", json={"model": "lengths", "input": input_})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "input")


async def test_embeddings_are_billed_by_tokens(api: Api) -> None:
    await api.send("POST", "/v1/embeddings", json={"model": "lengths", "input": ["ab", "c"]})
    (line,) = await api.usage()
    assert (line.line, line.quantity, line.cost_micro_eur) == ("embeddings:lengths", 3, 3)
