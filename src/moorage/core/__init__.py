"""The rules of Moorage: frozen values and pure functions. No clock, no chance, no I/O."""
