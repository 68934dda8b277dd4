"""CRI requests: which are intercepted, which of their fields may be edited, and what is remembered of them."""
