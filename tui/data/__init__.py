"""Where screens get their data from, and what they remember."""
