"""What editors and the documentation show of the language: colours, and a language server."""
