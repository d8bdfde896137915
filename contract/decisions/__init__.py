"""Decisions. Spec 4 (decision engine)."""
