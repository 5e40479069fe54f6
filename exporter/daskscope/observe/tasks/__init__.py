"""Graphs, computations and their task groups, from arrival to end."""
