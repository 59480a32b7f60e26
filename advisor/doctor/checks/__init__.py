"""What the doctor looks at, one subject a file: GPUs, labels, exporters, schedulers, gaps."""
