"""Programs that measure and fit; none is part of the product, and none is in the wheel."""
