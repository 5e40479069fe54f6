"""Jobs: runs of the same work, found and summed up in the background, compared when asked."""
