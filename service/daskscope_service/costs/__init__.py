"""What clusters cost: prices, budgets, and the usage of each user and week."""
