"""The generated pages of docs/reference, each from the code that it describes. `make golden` writes them."""
