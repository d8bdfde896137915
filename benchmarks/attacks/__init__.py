"""Harm: what somebody who means it would try against a running graph, and what it gets. Replies are judged, not speed.

__main__.py     python -m benchmarks.attacks; `make attack` starts a graph of its own for it

Attacks, each a function of a few lines that says what it tries, what it saw and what is allowed:

bodies.py       duplicate keys, floods of JSON, wrong values, bodies without end
connections.py  half-sent requests, bodies that trickle, clients that read nothing
requests.py     tricks with paths, hosts, headers, origins and keys
grammars.py     schemas that take long to compile
engines.py      herds at a sleeping engine, samples for strangers, one key that starves another
turns.py        control tokens inside messages
idempotency.py  races with one `Idempotency-Key`
recordings.py   hostile audio, forged and misused upload tickets; the files are made in bombs.py
messages.py     floods of MCP, pages that reach for it through a browser
sockets.py      live sessions that are torn off, not read, or sent frames of the wrong kind; bombs in frames
frames.py       live sessions that are flooded, and messages without an end, over plain sockets
tenants.py      looks at other organisations, stores that one could fill
voices.py       floods of voice design, drafts of somebody else

What they stand on:

attack.py       what an attack is, the list of them, what it may say
target.py       the graph under attack: address, keys, what it offers
bystander.py    somebody else who asks all the time, and how long that takes
wire.py         exact bytes over a socket; HTTP libraries tidy up what attackers send
"""
