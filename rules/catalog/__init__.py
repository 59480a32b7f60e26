"""GPUs, nodes and prices: the types and the files they come from."""
