"""Names of Ray that are not public, and what is done with them.

An upgrade can move any of them; tests/autoscaling/test_ray_internals.py lists them all and fails by name.

replica.py     how Serve's replica takes requests: bodies, headers of clients, its own port, the cluster's token
sockets.py     what connections of clients may cost: slices of the loop's time, frames, memory
logs.py        our lines go where Serve's go, with the ids of requests
metrics.py     calls that wait are counted, and reported at once
start.py       what a start asks: machines, accelerators, applications of a config file, few processes, hurry; joining

Three more live where they must: `autoscaling/router.py` is pickled by value, `deployments/fork_server/` runs without
imports, and `deployments/haproxy` is a program.
"""
