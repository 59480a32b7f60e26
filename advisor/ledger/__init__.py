"""What became of recommendations: proposed, accepted, snoozed, dismissed, expired, with who, when and why."""
