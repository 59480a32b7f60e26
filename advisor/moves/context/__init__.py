"""What a kind of recommendation and a waste rule are given: the fleet, its evidence, its prices, its owner."""
