"""Names of Ray that are not public, and what is done with them.

An upgrade can move any of them; tests/autoscaling/test_ray_internals.py lists them all and fails by name.

replica.py     how Serve's replica takes requests: bodies, headers of clients, its own port, the cluster's token
agent.py       a node's metrics stay on a machine that is alone
logs.py        our lines go where Serve's go, with the ids of requests
decisions.py   what Serve's default policy would decide at any time
metrics.py     calls that wait are counted, and reported at once
start.py       what a start asks: machines, accelerators, the applications of a config file, few processes, and hurry

Three more live where they must: `autoscaling/router.py` is pickled by value, `deployments/fork_server/` runs without
imports, and `deployments/haproxy` is a program.
"""
