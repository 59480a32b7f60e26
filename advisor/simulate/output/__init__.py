"""Where simulated signals go: the store, Prometheus series, pages of exporters."""
