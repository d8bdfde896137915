"""When replicas start and stop, and who gets a slot. Below `launch`, only this package and `deployments` know Ray.

engine.py       what a caller needs of an engine; whose a call is, and the times that it took
gate.py         one way in to an engine: cold, busy, deadlines, translation of every Ray error
room.py         who waits for a busy engine, and whose turn it is: organisations one after the other
queue.py        coroutines that wait there
views.py        the running replicas of an engine, as this process sees them: no RPC, 0.2 us a look
router.py       the request router that feeds the view and refuses when every slot is taken
failures.py     what a client is told when a call fails
waking.py       how an engine at zero is woken
waits.py        when a call that waits will begin, for those who want to know
turns.py        the arithmetic of that: in which order, and when
sketch.py       how long calls and starts take
metrics.py      what a process counts and measures
exporter.py     how Ray gets it, for Prometheus
observation.py  what a process tells of single requests, as its environment says: traces, logs
tracing.py      how spans get to a collector; imported only where they are wanted
watch.py        starting or failed? Serve is queried by one poller, only while somebody waits for a cold engine
policy/         how many replicas an engine is to have
deployment.py   a stanza's `serving` as Serve's deployment options, checked by Ray
simulate.py     what the policy would have made of yesterday
simulation/     that day in virtual time
ray_internals/  names of Ray that are not public: what we change and what we call
"""
