"""The functions that read rows for the API and the pages: one function for both."""
