"""The default plugins of a Kubernetes scheduler, over all nodes at once."""
