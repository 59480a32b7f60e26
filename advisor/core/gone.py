"""How long a node sends no data until it counts as gone: for money and for moves alike."""

# An agent that failed on a Friday is back on Monday.
GONE_SECONDS = 3 * 86400.0
