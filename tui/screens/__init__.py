"""One file a screen: pages of the menu and what they open."""
