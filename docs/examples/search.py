"""Search by meaning: an embedding model finds candidates among all documents, a reranker sorts the few.

Shows vectors as numpy arrays, and why one searches in two steps: vectors of documents are computed once and compared in
no time, a reranker reads the query with each document.
"""

# %% The graph of `make serve`. On a cluster, `RAY_AUTH_TOKEN` takes the place of the file.
import os

os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN_PATH", "var/ray_token")

import numpy as np

from contract.errors import ApiError
from graph import connect

g = connect()
embedder, reranker = g.embeddings["all-minilm-l6-v2"], g.rerank["all-minilm-l6-v2-cosine"]

DOCUMENTS = [
    "Heat the oil, then fry the onions until they are golden.",
    "To reset your password, open the settings and choose Security.",
    "The museum is closed on Mondays and on public holidays.",
    "If you cannot log in, ask for a link by email; it is valid for one hour.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "Tickets for children under six are free.",
    "Let the dough rest for an hour before you bake the bread.",
    "A plant that gets too little light grows long, pale stems.",
]
QUERIES = ["I forgot my login", "visiting with kids", "why do leaves need sun?"]

# %% Vectors have length 1, so that their product is the cosine of the angle between them.
documents = embedder.embed(DOCUMENTS, input_type="document")
queries = embedder.embed(QUERIES, input_type="query")
print(f"documents {documents.shape}, queries {queries.shape}, {documents.dtype}")
similarity = queries @ documents.T

# %% The two nearest documents of each query.
for query, row in zip(QUERIES, similarity, strict=True):
    print(f"\n{query}")
    for place in np.argsort(-row)[:2]:
        print(f"  {row[place]:.2f}  {DOCUMENTS[place]}")

# %% The four best of the first query, sorted by the reranker.
candidates = [DOCUMENTS[place] for place in np.argsort(-similarity[0])[:4]]
ranking = reranker.rerank(QUERIES[0], candidates)
print(f"\n{QUERIES[0]}, reranked ({ranking.prompt_tokens} tokens read)")
for score, document in sorted(zip(ranking.scores, candidates, strict=True), reverse=True):
    print(f"  {score:.2f}  {document}")

# %% What it would refuse as an API, it refuses here: as an `ApiError` with the code of the table.
try:
    embedder.embed(["one text"], dimensions=10_000)
except ApiError as error:
    print(f"\n{error}")
