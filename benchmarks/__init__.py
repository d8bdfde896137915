"""Programs that use a running graph as others would.

speed/       how fast it is, beside the servers of others and beside less of ours
capacity/    a day of requests through the scaling policy of production, in virtual time
quality/     how often its answers are right, and whether they stay the same
attacks/     what a client with bad intentions can do, and what the graph does against it
clients/     the clients and frameworks that people use, each as a small program

servers.py   starts a server and ends it; the whole graph with a customer of its own
tables.py    a table of figures
"""
