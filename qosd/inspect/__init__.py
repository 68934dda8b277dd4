"""NodeInspect: what koordctl asks this node's qosd."""
