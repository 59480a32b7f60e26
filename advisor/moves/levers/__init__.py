"""What other ways of serving would change: told beside recommendations, never as a saving."""
