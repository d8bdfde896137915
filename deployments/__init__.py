"""Where it runs: one thin file per kind of replica, and the ingress.

replica.py      what every model replica has: load, warm, health, close
chat.py embeddings.py rerank.py     one class per kind; the adapter of the stanza does the work
handles.py      typed handles for researchers (`graph.connect`)
ingress/        the HTTP side: routes, admission, errors. Never imports `models` or torch
"""
