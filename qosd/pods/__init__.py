"""The node's pods: from the container runtime, from kubelet, and from the cgroup tree's own events."""
