"""A real Ray cluster with the real embedded models and, beside them, engines that misbehave on command."""
