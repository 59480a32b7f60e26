"""One file a widget; what they show is given to them, what they want they post."""
