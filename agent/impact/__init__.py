"""What watching costs the work that is watched (`skuwise agent doctor --impact`)."""
