"""What is asked of clusters: shutdowns, by people and by policies."""
