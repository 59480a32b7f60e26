"""Which workloads there are, on which GPUs, in which phases."""
