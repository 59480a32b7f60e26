"""One Advice, many shapes: table, JSON, CSV, Markdown."""
