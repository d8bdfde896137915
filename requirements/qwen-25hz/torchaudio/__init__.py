"""Holds `compliance.kaldi`, see there."""
