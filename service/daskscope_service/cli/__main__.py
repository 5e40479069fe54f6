"""Run the command line: ``python -m daskscope_service.cli``."""

from daskscope_service.cli.main import main

main()
