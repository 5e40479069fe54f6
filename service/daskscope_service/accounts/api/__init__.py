"""The API of accounts: workspaces, members, tokens, and signing in from a terminal."""
