"""Where sessions are kept."""

# How a sealed text begins; no JSON does. Here and not in `sealing`, so that whoever reads a plain store needs no more
# than this to know that it is one.
SEALED = "~sealed1:"
