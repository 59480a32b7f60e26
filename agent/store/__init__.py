"""The node database: rollups, retention, readers; the only place with its SQL."""
