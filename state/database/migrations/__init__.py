"""Steps of the schema, forwards and backwards. `state.database.migrate` runs them."""
