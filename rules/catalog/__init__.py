"""GPUs, nodes, prices: the types and the files they come from."""
