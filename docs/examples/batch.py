"""A data set through the same models, by Ray Data and without the graph: vectors of texts, transcripts of sounds.

Each class below is what Ray Data calls for every batch: it loads an adapter as the catalogue says, once per actor, and
keeps it. The graph answers people, this empties folders: what is slow for one is fast for all.

Ray Data is in an environment of its own: `make setup-batch`, then `.venv/batch/bin/python -m docs.examples.batch`. Here
it runs on a Ray of its own. On a cluster set RAY_ADDRESS, and the blocks of a data set spread over its machines, which
all need this environment at this path.
"""

# %% The classes that Ray Data calls.
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.data import ActorPoolStrategy, DataContext

import configs
import models
from contract.embeddings import EmbeddingsJob
from contract.speech.engine import SpeechJob
from contract.transcription.request import TranscriptionRequest, plan
from contract.transcription.transcript import Transcript

PROFILE = "embedded"
FOLDER = Path("var/examples/batch").absolute()
Batch = dict[str, Any]

SENTENCES = [
    "The train to the coast leaves at nine.",
    "We baked bread with olives and salt.",
    "The railway station was full of people.",
    "Soup tastes better on the second day.",
]


class Embed:
    """Texts to vectors."""

    def __init__(self, model_id: str) -> None:
        self.adapter = models.load(configs.load(PROFILE).embeddings[model_id])

    async def __call__(self, batch: Batch) -> Batch:
        """Adds `vector`, float32 [n, dimensions], to the column `text`."""
        results = await self.adapter.embed(EmbeddingsJob(tuple(batch["text"])))
        return batch | {"vector": np.frombuffer(results.vectors, "<f4").reshape(-1, results.dimensions)}


class Speak:
    """Texts to sounds: here they only make a data set for the next class."""

    def __init__(self, model_id: str) -> None:
        self.adapter = models.load(configs.load(PROFILE).speech[model_id])

    async def __call__(self, batch: Batch) -> Batch:
        """Adds `bytes`, a WAV file each."""
        spoken = [await self.adapter.speak_whole(SpeechJob(text, "en", "F1")) for text in batch["text"]]
        return batch | {"bytes": np.array([block.data for block in spoken], dtype=object)}


class Transcribe:
    """Sounds to texts."""

    def __init__(self, model_id: str) -> None:
        model = configs.load(PROFILE).transcription[model_id]
        self.adapter = models.load(model)
        self.plan = plan(TranscriptionRequest(language="en"), model)

    async def __call__(self, batch: Batch) -> Batch:
        """Adds `heard` and `seconds` to the columns `path` and `bytes`, and leaves the bytes behind."""
        results = [await self._heard(data) for data in batch["bytes"]]
        heard = np.array([transcript.text for transcript in results], dtype=object)
        return {"path": batch["path"], "heard": heard, "seconds": np.array([one.duration_s for one in results])}

    async def _heard(self, data: bytes) -> Transcript:
        transcript = Transcript(self.plan)
        async for part in self.adapter.transcribe(self.plan.job(data)):
            transcript.add(part)
        return transcript


def through(data: Any, kind: type, model_id: str, batch_size: int) -> Any:
    """`data` through one actor that holds the model. More of them, or `num_gpus=1` for each, where machines allow."""
    actors = ActorPoolStrategy(size=1)
    return data.map_batches(kind, fn_constructor_args=(model_id,), batch_size=batch_size, compute=actors, num_cpus=1)


# %% A Ray of its own, unless one is named. Its processes see the packages and the weights that this one does.
os.environ.setdefault("PARLANCE_HOME", str(Path("var").absolute()))
ray.init(
    os.environ.get("RAY_ADDRESS", "local"),
    runtime_env={"py_executable": sys.executable},
    logging_level="ERROR",
    log_to_driver=False,
)
DataContext.get_current().enable_progress_bars = False  # outside of a terminal they are many lines of a log

# %% A folder of texts to vectors, in a file that other programs read, too.
(FOLDER / "texts").mkdir(parents=True, exist_ok=True)
for number, sentence in enumerate(SENTENCES):
    (FOLDER / f"texts/{number}.txt").write_text(sentence + "\n", encoding="utf-8")
embedded = through(ray.data.read_text(str(FOLDER / "texts")), Embed, "all-minilm-l6-v2", batch_size=64).materialize()
embedded.write_parquet(str(FOLDER / "vectors"))
rows = embedded.take_all()
vectors = np.stack([row["vector"] for row in rows])
nearness = vectors @ vectors.T - 2 * np.eye(len(rows))  # nobody is a neighbour of his own
for row, nearest in zip(rows, nearness.argmax(axis=1), strict=True):
    print(f"{row['text']}  is nearest to  {rows[nearest]['text']}")

# %% A folder of sounds to transcripts. The sounds are made first.
(FOLDER / "sounds").mkdir(exist_ok=True)
texts = ray.data.from_items([{"text": text} for text in SENTENCES])
for number, row in enumerate(through(texts, Speak, "supertonic-3", batch_size=4).take_all()):
    (FOLDER / f"sounds/{number}.wav").write_bytes(row["bytes"])
sounds = ray.data.read_binary_files(str(FOLDER / "sounds"), include_paths=True)
for row in through(sounds, Transcribe, "voxtral-mini-transcribe", batch_size=4).take_all():
    print(f"{Path(row['path']).name}  {row['seconds']:.1f} s  {row['heard']}")
