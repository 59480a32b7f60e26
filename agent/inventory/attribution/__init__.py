"""Who holds which GPU, from processes and schedulers."""
