"""What the agent says of itself: doctor, one reading, its costs and permissions."""
