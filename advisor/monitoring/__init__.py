"""Findings and workloads as metrics; Prometheus rules and Grafana dashboards, from one source."""
