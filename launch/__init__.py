"""Starts a profile on one machine, and says beforehand whether it can work. A cluster uses `serve deploy` instead.

    python -m launch [configs/embedded.yaml]     start.py: fetch weights, open state, start Ray and the graph
    python -m launch check PROFILE               check/: why a profile cannot work here, and what it takes
    python -m launch weights COMMAND             weights.py: fetch, verify, list, pin and lock weights
    python -m launch upgrade CONFIG              upgrade/: moves a cluster to another graph beside the old one

selection.py     which models of a config file this machine runs, and which of them it wakes
environment.py   what the Ray processes inherit
welcome.py       the message that says the graph is ready, and what to try
"""
