"""Time series and maps of a fleet, as the terminal screens draw them."""
