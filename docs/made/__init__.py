"""The programs of `make docs`: they write tables of pages, draw, and build a site.

blocks.py        puts what is made between the marks of a page
alerts.py        cluster/observability: rules of alerts for the operator of Kubernetes
commands.py      docs/commands.md, from the arguments of the command lines
errors.py        table of docs/errors.md, from the rows of `contract.errors`
observability.py docs/observability.md, from the rows of `contract.telemetry`, the dashboards and the alerts
panels.py        reads what dashboards show
replies.py       asks a real server for the replies that the reference shows
reference.py     page of the site with the fields of every route, from the OpenAPI document
rehearsal.py     table of docs/cluster.md, from the record of a rehearsal (`make rehearse`), rehearsal.json
reliability.py   docs/reliability.md, from the record of a campaign (`make campaign`), campaign.json
settings.py      docs/settings.md, from the arguments of the graph and the types of stanzas
schemas.py       a JSON schema in words
pictures/        draws docs/images, in a light and a dark theme
voices.py        tables in docs/voices.md, from the stanzas of engines and voices
site.py          hooks of MkDocs: its navigation, its links, and what each page may load

`try.html` and `try.js` are the page of the site where one calls routes. `examples.toml` holds one
example for each route; tests run them as they stand.
"""
