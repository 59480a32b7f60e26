"""The page of metrics that Prometheus scrapes."""
