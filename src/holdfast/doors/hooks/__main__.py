"""`python -m holdfast.doors.hooks`: the same as `holdfast-hook`."""

from holdfast.doors.hooks.main import main

main()
