"""Steps before the route of every request, and what every reply has.

middleware.py   around every route: the headers of every reply; a table of the routes that need one admission only
concurrency.py  how much requests may hold at one time: of a key, an organisation, this process
admission.py    length, key, scope, rate: the dependency that every route declares
sockets.py      the same for websockets; live.py: how many sessions there may be on them
bodies.py       bodies as they come and replies as they go, each step within its time
origins.py      where a request comes from: the client's network, the page that sent it
cors.py         which web pages may call, and the headers for their browsers
proxies.py      the proxies in front, and what they say of a client
"""
