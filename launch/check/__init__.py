"""Judges if a profile can work where it is to run, and what it takes: `python -m launch check PROFILE`.

faults.py    each reason why a profile cannot work at a site, as one sentence that says what to change; `refuse` raises
cost.py      GPUs, CPUs, memory and disk, with every engine asleep and with every engine at its largest
scaling.py   what the scaling policy will do, and targets that it cannot reach
cli.py       the command

It looks at all layers, so it stands above them. The graph refuses with it when it is built.
"""
