"""Measurements beside the peers, one file per question. Results with date and hardware are in `results/`."""
