"""Pictures of schemes and topologies, as SVG that needs nothing else: no font, no script, no other file."""
