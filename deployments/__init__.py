"""Where it runs: one thin file per kind of replica, and the ingress.

replica.py      what every model replica has: load, warm, health, close
<noun>.py       one class per capability: its engine, in a replica
client.py       typed handles for researchers (`graph.connect`)
handles.py      what each of them can be asked; sound_handles.py: likewise, of what speaks and listens
calls.py        how an answer is waited for, awaited, or iterated over
fork_server/    starts of engines without their imports
ingress/        the HTTP side. Never imports `models` or torch
haproxy         HAProxy with our changes
"""
