"""Steps of the schema, forwards and backwards. `state.migrate` runs them."""
