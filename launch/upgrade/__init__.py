"""`python -m launch upgrade`: moves a cluster from one graph to another over one set of GPUs.

plan      pure: versions of the graph in what Serve reports, and what an upgrade will take
handover  the steps, over a `UpgradeCluster` that tests replace
cluster   that `UpgradeCluster` on Ray
cli       the command
"""
