"""``skuwise doctor SOURCE``: what a source provides, what is missing, and the line that would add it."""
