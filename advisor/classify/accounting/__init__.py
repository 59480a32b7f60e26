"""Where the GPU-hours of each node went."""
