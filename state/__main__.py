"""`python -m state`: organisations, keys, budgets and usage on the command line."""

import sys

from state.command_line import main

sys.exit(main())
