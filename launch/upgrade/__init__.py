"""`python -m launch upgrade`: moves a cluster from one graph to another over one set of GPUs.

plan      pure: versions of the graph in what Serve reports, and what an upgrade will take
handover  the steps, over a `Cluster` that tests replace
cluster   that `Cluster` on Ray
cli       the command
"""
