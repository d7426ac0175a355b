"""The model: a store in plain Python that says what every store does."""

from moorage.testing.model_store.store import ModelStore as ModelStore
