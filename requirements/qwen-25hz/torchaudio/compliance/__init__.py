"""Holds `kaldi`, see there."""
