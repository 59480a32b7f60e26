"""The advice and the weekly report as one document: what it says, before any format."""
