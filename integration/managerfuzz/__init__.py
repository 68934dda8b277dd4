"""koord-manager attacked, with a large cluster's honest clients beside: ``make fuzz-manager``."""
