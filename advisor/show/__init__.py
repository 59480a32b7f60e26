"""Pages and their words: one document model, and the writers of each format."""
