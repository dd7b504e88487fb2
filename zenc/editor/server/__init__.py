"""The language server: what an editor asks of a text, answered from its syntax tree and from the manual."""
