"""Work of every kind with no sign of its own: what the model of kinds learns from."""
