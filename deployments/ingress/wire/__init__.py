"""How requests and replies are written down."""
