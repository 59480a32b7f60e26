"""Minutes, hours, bursts: what samples are summed up to. Pure functions."""
