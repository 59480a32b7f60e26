"""Waste and what to change: rules that find waste, moves with savings and risk, and what blocks them."""
