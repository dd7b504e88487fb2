"""``zenc cache``: the compiled kernels on this machine."""

from __future__ import annotations

import typer

from zenc.cli.common import JsonOption, answer, print_json, reporting

cache = typer.Typer(
    help="The cache of compiled kernels: list, clear, path.\n\nZENC_CACHE_DIR in the environment says where it is.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@cache.command("list")
def list_(json: JsonOption = False) -> None:
    """List what is in the cache, the newest first: when it was compiled, for what, its size, and for which schemes.

    Kernels depend on how a scheme maps units to parts, and on little else, so several schemes may share them.
    """
    with reporting(json):
        from zenc.codegen.build.cache import cache_dir, entries

        found, where = entries(), cache_dir()
    if json:
        rows = [
            {
                "key": entry.key,
                "path": str(entry.path),
                "bytes": entry.size,
                "created": entry.created.isoformat(),
                "target": entry.target or None,
                "schemes": list(entry.schemes),
            }
            for entry in found
        ]
        print_json({"ok": True, "entries": rows})
        return
    if found:
        print(f"{'compiled':16}  {'target':10}  {'bytes':>12}  {'key':12}  schemes")
    for entry in found:
        when, schemes = f"{entry.created:%Y-%m-%d %H:%M}", ", ".join(entry.schemes) or "-"
        print(f"{when}  {entry.target or '-':10}  {entry.size:>12,}  {entry.key[:12]}  {schemes}")
    print(f"{len(found)} compiled, {sum(entry.size for entry in found):,} bytes, in {where}")


@cache.command("clear")
def clear(json: JsonOption = False) -> None:
    """Remove everything in the cache; kernels are compiled again when they are needed."""
    with reporting(json):
        from zenc.codegen.build.cache import clear

        removed = clear()
    freed = sum(entry.size for entry in removed)
    told = {"removed": [entry.key for entry in removed], "bytes": freed}
    answer(json, told, f"removed {len(removed)} compiled, {freed:,} bytes")


@cache.command("path")
def path(json: JsonOption = False) -> None:
    """Print the directory of the cache, which need not exist yet."""
    with reporting(json):
        from zenc.codegen.build.cache import cache_dir

        where = str(cache_dir())
    answer(json, {"path": where}, where)
