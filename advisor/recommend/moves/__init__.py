"""One kind of recommendation a file."""
