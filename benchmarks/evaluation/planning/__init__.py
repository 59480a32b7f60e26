"""Fleets on which plans are made, executed and measured anew."""
