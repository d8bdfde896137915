"""A day of requests through the scaling policy and the waiting rooms of production, in virtual time.

traces.py       requests that are played: CSV files
made.py         and made ones, with shapes that follow what is published
clock.py        virtual time: it jumps from one event to the next
run.py          one run: the same trace gives the same result for the same seed
engine.py       the gate's rules and rooms in front of replicas
replicas.py     replicas that only count time, and the room that engines share
controller.py   what Serve's controller sees of them, and when
policies.py     who may decide
serve_default.py  Serve's default policy at any time
processes.py    the runs of one command, one for each core at a time
summary.py      a run in a few figures

`python -m benchmarks.capacity` runs it.
"""
