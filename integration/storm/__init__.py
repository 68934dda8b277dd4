"""SIGKILLs of the proxy, and restarts of the runtime, under the calls of a busy kubelet."""
