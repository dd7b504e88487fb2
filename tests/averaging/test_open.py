"""``zenc.open``: each kind of text by its name and as a text, with the verbs of its kind."""

import pytest

import zenc

KINDS = {
    "scheme": "scheme mine { tier node(2): dense_ring   tier cluster: dense_ring }",
    "strategy": "strategy mine { others: dense_ring }",
    "averaging": "averaging mine { alternate [everyone]  sums: dense_ring }",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_has_the_verbs_of_its_kind(kind: str) -> None:
    found = zenc.open(KINDS[kind], ranks=4)
    assert found.kind == kind and found.check().name == "mine"
    assert found.explain().to_json() and found.draw().svg().startswith("<svg")
    lacking = {"strategy": found.load, "averaging": found.compile}.get(kind)
    if lacking is None:
        assert zenc.open("balanced").kind == "scheme" and isinstance(found.compile("plan"), zenc.Artifact)
    else:
        with pytest.raises(zenc.SchemeError, match="wrong-kind"):
            lacking()
        with pytest.raises(zenc.SchemeError, match=f"is about its {kind}, which has no 'link'"):
            zenc.open(KINDS[kind], link="1 Gbit/s")
