"""What comes in: validated, queued, written by one writer."""
