"""koord-qosd, the node daemon. Today: the runtime hooks and NodeInspect; it writes no kernel file yet."""
