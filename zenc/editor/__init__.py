"""Editor support: tokens for syntax highlighting, and the language server."""
