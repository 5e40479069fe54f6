"""Programs of users, run with and without daskscope: they print and end the same."""
