"""Real runs of one known cause each, and healthy ones, kept as what their clusters sent."""
