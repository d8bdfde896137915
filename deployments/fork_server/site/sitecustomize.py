"""Python imports this at each of its starts where this folder is on its path; it is for one of them.

Before Ray starts a worker that has a runtime environment, it starts a Python that imports all of Ray, only to put a
command together. Where that command is the fork server's, it can be had without: a quarter of a small engine's start.
"""

import sys

if sys.orig_argv[1:2] and sys.orig_argv[1].endswith("/ray/_private/workers/setup_worker.py"):
    from deployments.fork_server import shortcut

    shortcut.take(sys.orig_argv[2:])
