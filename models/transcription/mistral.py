"""Speech to text by an HTTP API."""
