"""Faults under the calls of a busy kubelet: SIGKILLs of the proxy here, of everything in the guest."""
