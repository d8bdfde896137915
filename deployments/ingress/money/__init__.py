"""What a request costs, and what is done once."""
