"""Answers of skuwise to other programs: over HTTP and to assistants."""
