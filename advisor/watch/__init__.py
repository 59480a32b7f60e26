"""What is certain within hours: a reading of the last hours in, sightings out. Pure."""
