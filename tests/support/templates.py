"""Variables of a template: its undeclared ones, with those of the templates that it includes."""

from __future__ import annotations

from jinja2 import Environment, meta, nodes


def undeclared(environment: Environment, template: str) -> set[str]:
    tree = environment.parse(environment.loader.get_source(environment, template)[0])
    declared = {node.target.name for node in tree.find_all(nodes.Assign)}
    included = [node.template.value for node in tree.find_all(nodes.Include)]
    inside = set().union(*(undeclared(environment, name) for name in included))
    return meta.find_undeclared_variables(tree) | (inside - declared)
