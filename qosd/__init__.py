"""koord-qosd, the node daemon: it measures the node, decides what each cgroup should hold, writes that, and explains it."""
