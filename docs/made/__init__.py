"""The programs that write two pages of the documentation: `make docs`.

errors.py        docs/errors.md, from the rows of `contract.errors` and `contract.remedies`
reference.py     docs/reference.md, from the OpenAPI document
schemas.py       a JSON schema in words
routes.py        what the OpenAPI document does not say: scope, example, where the behaviour is described

`examples.toml` holds one example for each route; tests run them as they stand.
"""
