"""What workloads ask of the hardware over time, one kind a file."""
