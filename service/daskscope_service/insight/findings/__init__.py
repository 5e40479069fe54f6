"""What stands out about a computation or a cluster: causes, with their evidence and remedies."""
