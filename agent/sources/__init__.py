"""One file for each thing that is read on a node."""
