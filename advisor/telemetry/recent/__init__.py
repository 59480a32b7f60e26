"""The last hours of a fleet, for the watch: from node databases, or a server of Prometheus' API."""
