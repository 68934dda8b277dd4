"""The node's own files, units and sockets, as far as only koordctl looks at them or changes them."""
