"""`python -m models.weights`: fetch, verify, list, pin."""

from models.weights.cli import main

main()
