"""What the finance team sees: exports of charges, what they say of prices, and what they do not explain."""
