"""The checks before a route, and what every reply has."""
