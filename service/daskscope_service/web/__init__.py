"""What every view uses: addresses, bodies, answers, problems, forms and tables."""
