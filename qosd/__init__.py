"""koord-qosd, the node daemon: it measures the node, decides what cgroups should hold, writes it, and explains it."""
