"""Whether a profile can work where it is to run, and what it takes; known before anything is started or fetched.

faults.py    each reason why a profile cannot work, as one sentence that says what to change; `refuse` raises them
site.py      where it is to run: this machine, the cluster of this process, or what somebody says of another
cost.py      GPUs, CPUs, memory and disk, with every engine asleep and with every engine at its largest
cli.py       `python -m configs check PROFILE`

It looks at all layers, so it stands above them: both the graph and its launcher refuse with it.
"""
