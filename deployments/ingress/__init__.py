"""The HTTP side of the graph: routes over flows.

    deployment.py    the Serve deployment: opens state, puts gates before engines. The one file here that knows Ray
    app.py           build_app(service) -> FastAPI: routes at `/` and `/v1`, error handlers
    front/           before a route: middleware, limits, admission, bodies
    routes/          HTTP: one router per family. Parse the body, call the flow, make the response
    wire/            how forms are read and replies are written; repeated requests
    flows/           what a capability does for a caller: bill, call the engine, settle. No HTTP
    console/         the graph and the last requests, for people who look at them in a browser
    mcp/             tools over the Model Context Protocol, and the search of the documentation
    context.py       what flows work with: the service that a process is, one request to it, and its bill
    report.py        reports of a process on itself: engines, what it holds, what was billed
    traces.py        reports of a single request: the spans of its trace, a line of the log
    verifier.py      transcribes speech of this graph to verify it
    draft_worker.py  works on drafts of voices, for clients that have gone and processes that have died

The app is built late, in the replica, so the whole HTTP contract is testable without Ray: `build_app` needs no cluster.
"""
