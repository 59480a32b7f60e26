"""Showback and bills: exports of charges by team, what they say of prices, and what they do not explain."""
