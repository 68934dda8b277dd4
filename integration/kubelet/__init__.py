"""A real kubelet on a real containerd, first directly and then through the proxy."""
