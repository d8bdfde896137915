// Cohere's SDK. Its base address has no /v1: it says /v2 itself.
import { CohereClientV2 } from "cohere-ai";

import { check, run, step } from "./steps.mjs";

const client = new CohereClientV2({ environment: process.env.PARLANCE_URL, token: process.env.PARLANCE_KEY });

step("rerank", async () => {
  const reply = await client.rerank({
    model: "all-minilm-l6-v2-cosine",
    query: "capital of France",
    documents: ["Bananas are yellow.", "Paris is in France."],
    topN: 1,
  });
  check(reply.results[0].index === 1, "the best is named");
});

step(
  "embed",
  () => client.embed({ model: "all-minilm-l6-v2", inputType: "search_query", texts: ["a cat"] }),
  { cannot: "of Cohere's API only rerank is spoken; OpenAI's has the others", error: "404" },
);

await run();
