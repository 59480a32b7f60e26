"""Tables, plots, frame: what they show is given to them, what they want they post."""
