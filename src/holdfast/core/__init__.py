"""The rules of Holdfast: frozen values and pure functions. No clock, no chance, no I/O."""
