"""What a human applies for an accepted recommendation: patches, each with its undo. Nothing is applied here."""
