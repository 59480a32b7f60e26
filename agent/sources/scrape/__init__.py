"""Pages of other exporters: dcgm-exporter and inference servers."""
