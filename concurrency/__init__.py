"""What many share: whose turn it is, whether work goes on, and processes that run apart.

Pure Python; it knows no engine, request or Ray.

fairness.py     a queue and a counter that tell owners apart
semaphore.py    slots for threads and event loops, handed to owners in turn
stalls.py       what is under way, and whether it takes longer than it did before
child.py        a child process that runs one program apart, and can be killed at any time
"""
