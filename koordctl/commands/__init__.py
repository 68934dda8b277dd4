"""The commands, one module per family; each imports what costs time only when it runs."""
