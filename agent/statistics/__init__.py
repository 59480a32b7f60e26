"""What samples are summed up to: minutes, hours, bursts. Pure functions."""
