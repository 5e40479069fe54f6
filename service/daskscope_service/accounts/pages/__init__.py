"""The pages of accounts: sign-in, members, tokens, the audit log."""
