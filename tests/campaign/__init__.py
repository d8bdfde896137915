"""Faults on purpose, with a seed and a count of what was lost: `make campaign`."""
