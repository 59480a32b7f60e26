"""The page of metrics of ``skuwise serve``: what the newest advice and the watch say, for Prometheus."""
