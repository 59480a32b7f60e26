"""What a screen, a page or a card shows, as values."""
