"""The cluster as a whole: its users, its load, its cost, and whether it is idle."""
