"""The database file: its schema, its health, its copies."""
