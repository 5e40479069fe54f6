"""Workers: what they hold and do, and why they left."""
