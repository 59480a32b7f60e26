"""``skuwise doctor SOURCE``: what a source can tell, what is missing, and the line that would add it."""
