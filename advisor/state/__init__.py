"""One SQLite file a fleet: recommendations with their decisions, incidents, job cards and deliveries."""
