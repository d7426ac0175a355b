"""`python -m moorage.doors.hooks`: the same as `moorage-hook`."""

from moorage.doors.hooks.main import main

main()
