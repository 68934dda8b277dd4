"""The quick-start guides, run command by command on a whole cluster."""
