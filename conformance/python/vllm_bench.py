"""vLLM's benchmark of servers, `vllm bench serve`: every request of a burst must be answered."""

import importlib.util
import json
import os

from steps import NotHere, run, step

MODEL = "smollm2-135m-instruct"
REQUESTS = 24


def answered(backend, endpoint):
    """Runs the benchmark of `backend`. It counts an answer that is cut, refused or empty as failed."""
    if importlib.util.find_spec("vllm") is None:
        raise NotHere("vLLM is not installed here")
    from vllm.benchmarks.serve import add_cli_args, main
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    os.environ["OPENAI_API_KEY"] = os.environ["PARLANCE_KEY"]
    with open("prompts.jsonl", "w") as prompts:
        for number in range(REQUESTS):
            prompts.write(json.dumps({"prompt": f"Count to {number}.", "output_tokens": 8}) + "\n")
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    command = f"--backend {backend} --base-url {os.environ['PARLANCE_URL']} --endpoint {endpoint} --model {MODEL}"
    data = f"--dataset-name custom --dataset-path prompts.jsonl --num-prompts {REQUESTS} --skip-tokenizer-init"
    result = main(parser.parse_args([*command.split(), *data.split(), "--disable-tqdm"]))
    assert (result["completed"], result["failed"]) == (REQUESTS, 0), result


@step("24 of 24 requests, over chat")
def chat():
    """As most people measure a server."""
    answered("openai-chat", "/v1/chat/completions")


@step("24 of 24 requests, over completions")
def completions():
    """As vLLM's own figures are measured."""
    answered("openai", "/v1/completions")


if __name__ == "__main__":
    run()
