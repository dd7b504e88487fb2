"""The language: ``.zen`` text to a syntax tree, the tree back to text, and syntax errors as diagnostics."""
