"""What people see in a terminal: screens over the advice, for `skuwise tui`."""
