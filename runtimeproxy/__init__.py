"""koord-runtime-proxy: stands between kubelet and the container runtime and rewrites cgroup parameters on the way."""
