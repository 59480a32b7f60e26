"""Work of every kind without names: what the model of kinds learns from."""
