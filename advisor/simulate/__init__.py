"""Labelled fleets with physically consistent signals, written through the real store."""
