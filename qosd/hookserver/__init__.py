"""The hook service: RuntimeHookService of our own proxy and of Koordinator's, over the hook engine."""
