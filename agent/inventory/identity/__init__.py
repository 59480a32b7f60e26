"""What this node is: its names, its SKU, whether it is drained."""
