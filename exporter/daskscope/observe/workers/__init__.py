"""Workers: their resources, their activity, and why they left."""
