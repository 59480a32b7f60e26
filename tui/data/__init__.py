"""Data of the screens: where it comes from, and what is remembered."""
