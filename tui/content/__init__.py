"""What screens show, as text and cells."""
