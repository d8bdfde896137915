"""Runs the README, and what other pages mark as wanting a real graph, against the server of this run.

Each block under `<!-- run -->` of the README and under `<!-- run on a graph -->` elsewhere, page by page, in order.
"""

from dataclasses import replace

import pytest

from tests.cluster.conftest import ROOT, Server
from tests.docs.answers import check_answer
from tests.docs.pages import PAGES, README, Example, examples
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

ON_A_GRAPH = [example for page in PAGES if page != README for example in examples(page) if example.on_a_graph]


@pytest.mark.parametrize("example", [*examples(README), *ON_A_GRAPH], ids=lambda example: example.title)
def test_pages_answer_what_they_say(server: Server, example: Example) -> None:
    # A reader begins when the server says that it is ready, which is later than the first answer of /healthz.
    eventually(lambda: "Ctrl-C" in (server.home / "serve.log").read_text(), 60, "the server never said it is ready")
    here = replace(example, code=example.code.replace("var/", f"{server.home}/"))
    done = here.run(server.url, ROOT, 180, PARLANCE_HOME=str(server.home))
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
    if example.answer is not None:
        check_answer(done.stdout, example.answer)
