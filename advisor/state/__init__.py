"""Ledger, incidents, cards: one SQLite file a fleet, with decisions and deliveries."""
