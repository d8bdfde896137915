"""Starts and stops replicas, and assigns slots. Below `launch`, only this package and `deployments` know Ray.

engine.py       what a caller needs of an engine; the owner of a call, and its times
gate.py         one way in to an engine: cold, busy, deadlines, translation of every Ray error
slots.py        calls that wait for a busy engine: organisations take turns
queue.py        coroutines that wait there
views.py        the running replicas of an engine, as this process sees them: no RPC, 0.2 us a look
router.py       the request router that feeds the view and refuses when every slot is taken
failures.py     errors for a client when a call fails
waking.py       how an engine at zero is woken
waits.py        when a call that waits will begin, for those who want to know
turns.py        the arithmetic of that: in which order, and when
durations.py    how long calls and starts take
metrics.py      what a process counts and measures
exporter.py     how Ray gets it, for Prometheus
observation.py  reports of single requests, as the environment sets them: traces, logs
tracing.py      how spans get to a collector; imported only where they are wanted
watch.py        starting or failed? Serve is queried by one poller, only while a request waits for a cold engine
policy/         how many replicas an engine is to have
deployment.py   a stanza's `serving` as Serve's deployment options, checked by Ray
ray_internals/  names of Ray that are not public: what we change and what we call
"""
