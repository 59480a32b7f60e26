"""Labelled series: what somebody knows of work that was measured, read, stored and judged like an agent's own data."""
