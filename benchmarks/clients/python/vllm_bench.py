"""vLLM's benchmark of servers, `vllm bench serve`: every request of a burst must be answered."""

import importlib.util
import os
from pathlib import Path

from steps import NotHere, run, step

MODEL = "smollm2-135m-instruct"
TOKENIZER = Path(__file__).parents[3] / "var/weights" / MODEL
"""The benchmark counts tokens by itself; `make weights` has fetched it."""
REQUESTS = 24


def answered(backend, endpoint):
    """Runs the benchmark of `backend`, which counts every answer that is refused or breaks off as failed."""
    if importlib.util.find_spec("vllm") is None:
        raise NotHere("vLLM is not installed here")
    if not TOKENIZER.is_dir():
        raise NotHere("the tokenizer of the model is not here: make weights")
    from vllm.benchmarks.serve import add_cli_args, main
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    os.environ["OPENAI_API_KEY"] = os.environ["PARLANCE_KEY"]
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    server = f"--backend {backend} --base-url {os.environ['PARLANCE_URL']} --endpoint {endpoint} --model {MODEL}"
    prompts = f"--dataset-name random --random-input-len 16 --random-output-len 8 --num-prompts {REQUESTS}"
    command = [*server.split(), *prompts.split(), "--tokenizer", str(TOKENIZER), "--disable-tqdm"]
    result = main(parser.parse_args(command))
    assert (result["completed"], result["failed"]) == (REQUESTS, 0), result


@step("24 of 24 requests, over chat")
def chat():
    answered("openai-chat", "/v1/chat/completions")


@step("24 of 24 requests, over completions")
def completions():
    answered("openai", "/v1/completions")


if __name__ == "__main__":
    run()
