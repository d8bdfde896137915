"""Voxtral on vLLM."""
