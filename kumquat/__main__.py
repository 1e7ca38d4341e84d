"""`python -m kumquat` is `kumquat`."""

import sys

from kumquat.gateway.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
