"""Warm starts: a process of each node that has imported what engines import, and forks a worker whenever Ray wants one.

    raylet -> (bash) -> enter.py ---- socket ----> server.py        imported once: torch, vLLM, transformers, Ray ...
                           |                          `- fork ----> worker.py -> Ray's default worker, as ever
                           `- no server: exec of the worker itself, as without all this

plan.py         which engines start so, and what is imported for them: from their stanzas and adapters
shortcut.py     around Ray's own step before that; Python imports `site/sitecustomize.py` where `site` is on its path
ahead.py        starts a server together with the graph, where an engine is woken as soon as that is ready
enter.py        stands in for `python` in front of Ray's worker; asks, or continues alone and leaves a server behind
server.py       imports, makes sure that it can be forked, listens; ends with its raylet
worker.py       what a request must be, and how a fork becomes the worker that was asked for
footprint.py    for metrics and traces: memory of a node's servers; a process's age, imports, and whether it is a fork

Nothing depends on it: whatever is wrong with a server, a worker starts with imports of its own, and the server's log in
Ray's folder says why. What runs in a server is from this folder and from installed packages; our own modules are
imported by each worker, so that a redeploy meets no old code. docs/decisions/0018-fork-server.md says why, and what it
costs.
"""
