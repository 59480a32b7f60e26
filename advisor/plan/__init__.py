"""Which recommendations to carry out together, where every workload then runs, and which nodes come back when."""
