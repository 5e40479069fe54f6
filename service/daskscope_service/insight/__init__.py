"""What the service concludes from stored rows, as pure functions."""
