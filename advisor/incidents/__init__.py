"""The state of incidents on disk: opened, reminded, acknowledged, resolved."""
