"""Which nodes there are and what runs on them."""
