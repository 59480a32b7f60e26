"""Minutes and hours made of samples."""
