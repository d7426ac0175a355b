"""Files of this machine that have sessions in them: `finding` tells which and what they are, `taking` brings them in.

This is the rim: whatever opens a file for an import does it here, and whatever a file says is
judged in `service`.
"""
