"""Hardware, names, load curves and seeded randomness that every scenario stands on."""
