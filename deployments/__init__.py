"""Where it runs: one thin file per kind of replica, and the ingress.

replica.py      what every model replica has: load, warm, health, close
<noun>.py       one class per capability: its engine, in a replica
client.py       typed handles for researchers (`graph.connect`)
bodies.py       lets bodies into memory no faster than routes read them; ignores headers against our care
loopback.py     keeps the replicas' own port off the network on a machine that serves alone
fork_server/    starts of engines without their imports
ingress/        the HTTP side. Never imports `models` or torch
haproxy         HAProxy with our changes
"""
