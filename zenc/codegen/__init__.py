"""Code generation: ``render`` fills the templates, ``build`` compiles and keeps a cache, ``artifact`` is the result."""
