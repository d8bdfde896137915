"""Cohere's SDK. Its base address has no /v1: it says /v2 itself."""

import os

import cohere

from steps import run, step

MODEL = "all-minilm-l6-v2-cosine"
ASKED = {"query": "capital of France", "documents": ["Bananas are yellow.", "Paris is in France."]}
BASE_URL, KEY = os.environ["PARLANCE_URL"], os.environ["PARLANCE_KEY"]

client = cohere.ClientV2(api_key=KEY, base_url=BASE_URL)


@step("rerank")
def rerank():
    reply = client.rerank(model=MODEL, top_n=1, **ASKED)
    assert [result.index for result in reply.results] == [1]
    assert reply.meta.billed_units.search_units == 1


@step("rerank, async")
async def rerank_async():
    reply = await cohere.AsyncClientV2(api_key=KEY, base_url=BASE_URL).rerank(model=MODEL, **ASKED)
    assert len(reply.results) == 2


@step("embed", cannot="of Cohere's API only rerank is spoken; OpenAI's has the others", error="404")
def embed():
    client.embed(model="all-minilm-l6-v2", input_type="search_query", texts=["a cat"], embedding_types=["float"])


if __name__ == "__main__":
    run()
