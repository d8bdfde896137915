"""What several owners share, and who is next. Pure Python: it knows no engine, no request and no Ray.

fairness.py     a queue and a counter that tell owners apart
semaphore.py    slots for threads and event loops, handed to owners in turn
"""
