"""The model: a store in plain Python that defines the behaviour of every store."""

from moorage.testing.model_store.store import ModelStore as ModelStore
