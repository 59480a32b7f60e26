"""Facts in files: the catalog, the thresholds, the texts, and the one strict loader that reads them."""
