"""Reading files of rules: errors, strict fields, plain text."""
