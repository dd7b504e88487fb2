"""The verbs that help: ``zenc doctor``, ``zenc new`` and ``zenc help``, and ``zenc lsp`` for editors."""
