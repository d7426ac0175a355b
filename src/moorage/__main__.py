"""`python -m moorage`: the command line, wherever the `moorage` script is not on the path."""

import sys

from moorage.doors.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
