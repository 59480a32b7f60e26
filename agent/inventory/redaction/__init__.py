"""Command lines without their secrets."""
