"""Run the command line with `python -m tercet`."""

from tercet.cli import main

main()
