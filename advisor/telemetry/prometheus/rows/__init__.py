"""From series to the frame's rows: GPUs, nodes, fabric, identities."""
