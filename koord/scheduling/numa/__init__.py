"""CPUs of a pod's own, and what pods have of each NUMA node."""
