"""The advice of several shards joined into one: read strictly, refused where it cannot be added up, then joined."""
