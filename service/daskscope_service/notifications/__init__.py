"""Messages to people about what happens: targets, and what is sent to them."""
