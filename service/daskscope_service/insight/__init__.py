"""The answers, as pure functions over rows."""
