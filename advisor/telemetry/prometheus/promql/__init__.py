"""The queries, and the names of metrics and labels they use."""
