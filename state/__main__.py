"""`python -m state`: organisations, keys, budgets and usage on the command line."""

import sys

from state.cli.arguments import main

sys.exit(main())
