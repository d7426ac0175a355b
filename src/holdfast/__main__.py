"""`python -m holdfast`: the command line, wherever the `holdfast` script is not on the path."""

import sys

from holdfast.doors.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
