"""What a request passes before its route, and what every reply has.

middleware.py   the trace of a request from the first byte to the last; the headers of every reply
concurrency.py  how much requests may hold at one time: of a key, an organisation, this process
admission.py    length, key, scope, rate: the dependency that every route declares
short_way.py    a table of the routes that need no more than that
bodies.py       bodies as they come and replies as they go, each step within its time
origins.py      where a request comes from: the client's network, the page that sent it
cors.py         which web pages may call, and the headers that tell browsers so
proxies.py      the proxies in front, and what they say of a client
"""
