"""The language server: an editor's requests about a text, answered from its syntax tree and from the manual."""
