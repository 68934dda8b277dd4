"""A real Kubernetes control plane on loopback, and a real node behind our proxy, for tests and ``make cluster``."""
