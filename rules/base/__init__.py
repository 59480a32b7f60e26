"""Reading typed files: errors, strict fields, plain text."""
