"""`python -m launch upgrade`: moves a cluster from one graph to another over one set of GPUs.

plan.py      pure: versions of the graph in what Serve reports, and what an upgrade will take
handover.py  the steps, over a `UpgradeCluster` that tests replace
cluster.py   that `UpgradeCluster` on Ray
cli.py       the command
"""
