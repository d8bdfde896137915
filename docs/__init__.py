"""What strangers read, and the programs that write two of its pages: `make docs`.

    errors.py        docs/errors.md, of the rows of `contract.errors` and `contract.remedies`
    reference.py     docs/reference.md, of the OpenAPI document
    schemas.py       a JSON schema in words
    routes.py        what the OpenAPI document does not say: scope, example, where the behaviour is described
    examples/        scripts for researchers, one per capability

`examples.toml` holds one example for each route; tests run them as they stand.
"""
