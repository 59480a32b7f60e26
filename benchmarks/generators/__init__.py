"""Labelled fleets: `first` over the core of the demo, `third` without any code of it."""
