"""skuwise watches what GPU workloads really use and says which hardware they should run on."""

__version__ = "0.1.0"
