"""What a workload is: training, serving, idle and the others."""
