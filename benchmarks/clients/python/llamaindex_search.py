"""LlamaIndex, with its classes for servers that speak OpenAI's API."""

import os

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

from steps import City, run, step

MODEL = "smollm2-135m-instruct"
ASK = "Name the capital of France."
BASE_URL, KEY = f"{os.environ['PARLANCE_URL']}/v1", os.environ["PARLANCE_KEY"]

COMMON = {"model": MODEL, "api_base": BASE_URL, "api_key": KEY, "context_window": 8192, "max_tokens": 40}
llm = OpenAILike(is_chat_model=True, is_function_calling_model=True, **COMMON)
embedder = OpenAILikeEmbedding(model_name="all-minilm-l6-v2", api_base=BASE_URL, api_key=KEY)


def weather(city: City) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


@step("complete")
def complete():
    assert llm.complete(ASK).text
    assert OpenAILike(is_chat_model=False, **COMMON).complete("The capital of France is").text


@step("chat")
def chat():
    assert llm.chat([ChatMessage(role="user", content=ASK)]).message.content


@step("stream_chat")
def stream():
    assert "".join(piece.delta or "" for piece in llm.stream_chat([ChatMessage(role="user", content=ASK)]))


@step("achat")
async def chat_async():
    assert (await llm.achat([ChatMessage(role="user", content=ASK)])).message.content


@step("chat_with_tools")
def tools():
    answer = llm.chat_with_tools([FunctionTool.from_defaults(weather)], user_msg=ASK, tool_required=True)
    (call,) = llm.get_tool_calls_from_response(answer)
    assert call.tool_name == "weather"


@step("embeddings")
def embeddings():
    assert [len(vector) for vector in embedder.get_text_embedding_batch(["a cat", "a kitten"])] == [384, 384]


@step("VectorStoreIndex")
def index():
    documents = [Document(text="Bananas are yellow."), Document(text="Paris is the capital of France.")]
    made = VectorStoreIndex.from_documents(documents, embed_model=embedder)
    (best,) = made.as_retriever(similarity_top_k=1).retrieve(ASK)
    assert "Paris" in best.text
    assert str(made.as_query_engine(llm=llm, similarity_top_k=1).query(ASK))


if __name__ == "__main__":
    run()
