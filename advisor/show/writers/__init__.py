"""A document in each format: text, Markdown, HTML, CSV."""
