"""Reads every text of the project that a user can see, and holds it to the words of ``rules/wording.yaml``."""
