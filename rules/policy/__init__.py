"""Thresholds and teams: custom rules, exceptions, owners."""
