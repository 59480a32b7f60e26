"""Trials: one replica on the target, the rest where they were, compared over the same hours."""
