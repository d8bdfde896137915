"""What a request costs, and that it is paid once.

billing.py      reserve, top up, settle
idempotency.py  a repeated POST is done once
shutdown.py     bills what is open when the process is told to end
"""
