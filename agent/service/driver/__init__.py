"""Guarded calls into the GPU driver, and the bursts of readings beside them."""
