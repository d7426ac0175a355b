"""The web page: plain ES modules that a browser loads as they are. `README.md` explains how to add a view."""
