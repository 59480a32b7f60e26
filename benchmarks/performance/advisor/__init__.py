"""What advice, reports and screens take."""
