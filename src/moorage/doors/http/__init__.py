"""The HTTP door: REST, live streams, launchers, pages. Translate in, call once, translate out."""
