"""What is removed, when, by a clock that can be trusted."""
