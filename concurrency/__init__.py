"""Shared means of concurrency: turns of owners, stalls, and processes that run apart.

Pure Python; it knows no engine, request or Ray.

fairness.py     a queue and a counter by owner
semaphore.py    slots for threads and event loops, handed to owners in turn
stalls.py       what is under way, and whether it takes longer than it did before
slices.py       bytes of connections, a slice at a time
allowance.py    a rate with a burst
child.py        a child process that runs one program apart, and can be killed at any time
background.py   work that is done every few seconds, and again after an error
"""
