"""Files of this machine that contain sessions: `finding` finds and identifies them, `taking` imports them.

Imports open files only in this package. `service` validates their
content.
"""
