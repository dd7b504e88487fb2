"""The templates: their inputs are exactly what they use, and no user text gets out of its place."""

from __future__ import annotations

import dataclasses

import pytest
from jinja2 import meta

from zenc.codegen.render import UnitInputs, environment, literal, render
from zenc.codegen.templates import template_names, templates_dir
from zenc.errors import BuildError

TARGETS = sorted(path.name for path in templates_dir().iterdir() if path.is_dir() and path.name != "shared")


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_are_exactly_the_undeclared_variables(target):
    fields = {field.name for field in dataclasses.fields(UnitInputs)}
    used: set[str] = set()
    for name in template_names(target):
        source, _, _ = environment().loader.get_source(environment(), name)
        used |= meta.find_undeclared_variables(environment().parse(source))
    assert used == fields


@pytest.mark.parametrize("target", TARGETS)
def test_targets_have_equal_stems(target):
    def stems(of):
        return {name.rpartition("/")[2].partition(".")[0] for name in template_names(of)}

    assert stems("cpu") <= stems(target)


@pytest.mark.parametrize("mapping", ["contiguous", "permutation"])
def test_generated_code_is_as_it_was(golden, mapping):
    golden(f"example_{mapping}.kernels.cpp", render(UnitInputs("example", "0123abcd", mapping, 0x5EED))["kernels.cpp"])


def test_unknown_targets_are_refused():
    with pytest.raises(BuildError) as raised:
        render(UnitInputs("x", "00", "contiguous"), "abacus")
    assert raised.value.diagnostics[0].id == "unknown-target"


@pytest.mark.parametrize("name", ["two\nlines", "a\rb", "a\u2028b", "ends with \\", "trigraph ??/", "a\x00b"])
def test_names_that_could_leave_the_comment_are_refused(name):
    with pytest.raises(BuildError) as raised:
        render(UnitInputs(name, "00", "contiguous"))
    assert raised.value.diagnostics[0].id == "unsafe-text"


@pytest.mark.parametrize("digest", ["", "xyz", '0"', "0\n"])
def test_digests_are_hexadecimal(digest):
    with pytest.raises(BuildError):
        render(UnitInputs("x", digest, "contiguous"))


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_seeds_have_64_bits(seed):
    with pytest.raises(BuildError):
        render(UnitInputs("x", "00", "permutation", seed))


def test_literals_are_octal_where_c_would_read_something_else():
    assert literal('a"b\\c?\n\u00e9') == '"a\\042b\\134c\\077\\012\\303\\251"'
