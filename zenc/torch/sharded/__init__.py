"""Optimizers of tables whose states are at the owners of rows alone, and those that update rows lazily."""
