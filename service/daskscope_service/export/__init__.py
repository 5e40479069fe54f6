"""What is kept, written to files."""
