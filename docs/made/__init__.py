"""The programs of `make docs`: they write pages and the files in cluster/observability, draw, and build a site.

alerts.py        cluster/observability: rules of alerts, each with what to do
commands.py      docs/commands.md, from the arguments of the command lines
dashboards.py    cluster/observability: dashboards of Grafana
errors.py        docs/errors.md, from the rows of `contract.errors` and their remedies
observability.py docs/observability.md, from the rows of `contract.telemetry`, the dashboards and the alerts
panels.py        what dashboards show
queries.py       queries of Prometheus, by rows of `contract.telemetry`
remedies.py      why each error happens, and what to do
replies.py       asks a real server for the replies that the reference shows
reference.py     docs/reference.md, from the OpenAPI document, with scopes, examples and links
settings.py      docs/settings.md, from the arguments of the graph and the types of stanzas
schemas.py       a JSON schema in words
pictures/        draws docs/images, in a light and a dark theme
voices.py        tables in docs/voices.md, from the stanzas of engines and voices
site.py          hooks of MkDocs: its navigation, its links, and what each page may load

`try.html` and `try.js` are the page of the site where one calls routes. `examples.toml` holds one
example for each route; tests run them as they stand.
"""
