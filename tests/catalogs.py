"""A catalogue of engines that behave (`tests.engines`), one manner each."""

from __future__ import annotations

from typing import Any

from contract.catalog import Catalog, ChatModel, EmbeddingModel, RerankModel, Serving

PRICE = {"input_tokens": 1_000_000, "output_tokens": 2_000_000}
"""1 micro-EUR a token in, 2 out: sums that can be read."""


def chat(model_id: str, engine: str = "ObedientChat", **serving: Any) -> ChatModel:
    """A chat model with a window of 1,000 tokens."""
    return ChatModel(
        id=model_id,
        owned_by="tests",
        tier="default",
        context_window=1000,
        price=PRICE,
        serving=Serving(adapter=f"tests.engines:{engine}", runtime=model_id, **{"cpus": 0.05, "load_s": 2} | serving),
    )


def behaving(**chats: ChatModel) -> Catalog:
    """`chats` beside one embedder, one reranker, and a model that is known but not set up."""
    embedder = Serving(adapter="tests.engines:CountingEmbedder", runtime="lengths", cpus=0.05)
    reranker = Serving(adapter="tests.engines:LengthReranker", runtime="lengths", cpus=0.05)
    absent = chat("absent").model_copy(update={"serving": None})
    return Catalog(
        profile="embedded",
        chat={model.id: model for model in (*chats.values(), absent)},
        embeddings={
            "lengths": EmbeddingModel(
                id="lengths",
                owned_by="tests",
                dimensions=4,
                context_window=100,
                matryoshka=True,
                price=PRICE,
                serving=embedder,
            )
        },
        rerank={
            "longest": RerankModel(id="longest", owned_by="tests", context_window=100, price=PRICE, serving=reranker)
        },
    )
