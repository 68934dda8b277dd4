"""NodeInspect: the questions that koordctl asks this node's qosd."""
