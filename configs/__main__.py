"""`python -m configs check PROFILE`. It looks at all layers, so it is written above them: `preflight`."""

from preflight.cli import main

main()
