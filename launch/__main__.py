"""`python -m launch`: starts a profile; `check`, `weights` and `upgrade` are its other commands."""

import sys

try:
    match sys.argv[1:]:
        case ["check", *arguments]:
            from launch.check.cli import main as check

            check(arguments)
        case ["weights", *arguments]:
            from launch.weights import main as weights

            weights(arguments)
        case ["upgrade", *arguments]:
            from launch.upgrade.cli import main as upgrade

            upgrade(arguments)
        case arguments:
            from launch.start import main as start

            start(arguments)
except KeyboardInterrupt:
    print("parlance: interrupted; the next start continues from here", file=sys.stderr)
    sys.exit(130)
