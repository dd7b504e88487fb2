"""From a plan to compiled code: ``render`` fills the templates, ``build`` compiles, ``cache`` keeps the results."""
