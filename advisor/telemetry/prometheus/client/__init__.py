"""Talking to the server: bounds, deadlines, plans of ranges, the cache of answers."""
