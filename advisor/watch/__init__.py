"""Incidents of today: a reading of the last hours in, sightings out. Pure."""
