"""Jobs, the same work run again and again: found and summarised in the background."""
