"""When replicas live, and what a client sees of it. Only this package and `deployments` know Ray.

views.py    the running replicas of an engine, as this process sees them: no RPC, 0.2 us a look
router.py   the request router that feeds the view and refuses when every slot is taken
watch.py    starting or failed? asked of Serve only while a cold engine is waited for
gate.py     one way in to an engine: cold, busy, deadlines, translation of every Ray error
sizing.py   a stanza's `serving` as deployment options
"""
