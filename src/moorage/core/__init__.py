"""The rules of Moorage: frozen values and pure functions. No clock, no randomness, no I/O."""
