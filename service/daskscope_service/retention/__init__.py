"""Removes data by age or on request, and gives back the space on the disk."""
