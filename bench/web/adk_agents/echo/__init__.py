"""An app of ADK's server: one agent that needs no model."""

from . import agent as agent
