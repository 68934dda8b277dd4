"""koordctl: the operator's view of Koord on this node."""
