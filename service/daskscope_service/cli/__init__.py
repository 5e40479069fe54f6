"""The command line: ``daskscope`` and its commands, one module for each family."""
