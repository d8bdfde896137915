"""The HTTP side of the graph: routes over flows.

    deployment.py   the Serve deployment: opens state, puts a gate before every engine. The one file here that knows Ray
    app.py          build_app(service) -> FastAPI: routes at `/` and `/v1`, error handlers
    routes/         HTTP: one router per family. Parse the body, call the flow, make the response
    flows/          what a capability does for a caller: bill, call the engine, settle. No HTTP
    mcp/            tools over the Model Context Protocol, and the search of the documentation
    service.py      what one process works with: catalogue, engines, state
    context.py      what a flow knows of one request: who asks, its id, its timings
    middleware.py   opens the trace of a request; writes the headers that every reply has
    drafting.py     works on drafts of voices, for clients that have gone and processes that have died
    admission.py    length, key, scope, rate: the dependency that every route declares
    origins.py      where a request comes from: the client's network, the page that sent it
    browsers.py     which web pages may call, and the headers that tell browsers so
    proxies.py      the proxies in front, and what they say of a client
    addresses.py    addresses that clients get: signed, under the public address
    budgets.py      what requests may hold at one time: of a key, an organisation, this process
    reading.py      bodies as they come, within their length, their time and their budget
    patience.py     a bound in time for one step, which costs nothing where the step has not to wait
    forms.py        a form that brings a file
    voice_objects.py  a voice as it is answered
    served.py       headers that name the model that answered
    billing.py      reserve, top up, settle
    idempotency.py  a repeated POST is done once
    ending.py       bills what is open when the process is told to end
    streams.py      bytes as an engine makes them
    events.py       server-sent events: keep-alive, errors inside a stream; chat_streams.py: those of chat, on any wire
    openapi.py      the OpenAPI document

The app is built late, in the replica, so the whole HTTP contract is testable without Ray: `build_app` needs no cluster.
"""
