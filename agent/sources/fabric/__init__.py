"""InfiniBand and Ethernet ports, and which GPUs they serve."""
