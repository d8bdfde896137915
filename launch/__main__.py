"""`python -m launch`: starts a profile; `check` and `weights` are its other two commands."""

import sys

try:
    match sys.argv[1:]:
        case ["check", *arguments]:
            from launch.check.cli import main as check

            check(arguments)
        case ["weights", *arguments]:
            from launch.weights import main as weights

            weights(arguments)
        case arguments:
            from launch.start import main as start

            start(arguments)
except KeyboardInterrupt:
    print("parlance: interrupted; the next start continues from here", file=sys.stderr)
    sys.exit(130)
