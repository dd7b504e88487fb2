"""The ids of all diagnostics, which are stable; each has a bad and a good text in ``docs/reference/diagnostics.md``.

    DIAGNOSTICS = id -> (stage, meaning)                    # in the order of the stages

An id that several stages raise stands at the first of them: an unknown name or a division by zero is found by the
scheme stage where the text alone shows it, and by the proof where it takes a rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_INSTALLATION = {
    "broken-installation": ("installation", "a directory of zenc's own files is not there"),
}

_SYNTAX = {
    "syntax": ("syntax", "the text is not in the language"),
    "empty-file": ("syntax", "the text declares nothing"),
    "not-text": ("syntax", "the file holds bytes that are no UTF-8 text"),
    "nesting": ("syntax", "the text nests deeper than anyone can read"),
    "number-range": ("syntax", "a number is too great"),
}

_LOAD = {
    "unreadable-file": ("load", "a file can't be read"),
    "missing-import": ("load", "an imported file does not exist"),
    "import-cycle": ("load", "a file imports itself, at once or by way of others"),
}

_FORMAT = {
    "unwritable-file": ("format", "a file can't be written"),
}

_SCHEME = {
    "no-scheme": ("scheme", "the file has no scheme"),
    "several-schemes": ("scheme", "the file has several schemes, and none was chosen"),
    "unknown-scheme": ("scheme", "the file has no scheme of that name"),
    "duplicate-name": ("scheme", "two schemes, two schedules, or two tiers of a scheme, have one name"),
    "duplicate-parameter": ("scheme", "two parameters have one name"),
    "unknown-key": ("scheme", "a key is none of those a scheme has"),
    "duplicate-key": ("scheme", "a key is there twice"),
    "missing-key": ("scheme", "a key that must be there is not"),
    "unknown-value": ("scheme", "a value is none of the choices of its key"),
    "wrong-value": ("scheme", "the words are known, but not in this place or order"),
    "wrong-arguments": ("scheme", "a word or a function has too many, too few or unknown arguments"),
    "wrong-type": ("scheme", "a number of another kind is needed"),
    "wrong-range": ("scheme", "a number lies outside what is allowed"),
    "unknown-parameter": ("scheme", "a value is given for a parameter that the scheme does not have"),
    "missing-parameter": ("scheme", "a parameter has neither a value nor a default"),
    "missing-phase": ("scheme", "a schedule has no push, or no pull"),
    "duplicate-phase": ("scheme", "a schedule has two blocks for one phase"),
    "unknown-name": ("scheme", "an expression uses a name that means nothing there"),
    "unknown-function": ("scheme", "an expression calls a function that does not exist"),
    "division-by-zero": ("scheme", "an expression divides by zero"),
    "send-outside-step": ("scheme", "a move is in no step"),
    "nested-step": ("scheme", "a step is inside a step"),
    "shadowed-name": ("scheme", "a name is already taken"),
    "tier-size": ("scheme", "an inner tier has no size, or one that does not fit; or the outermost has one"),
    "tiers-and-dimensions": ("scheme", "a scheme has tiers, and a key that its tiers say"),
    "conflicting-tiers": ("scheme", "two tiers map units to slots, or cut the tensor in units, in different ways"),
    "recursive-tier": ("scheme", "a scheme is a tier of itself, at once or by way of others"),
    "choice-and-dimensions": ("scheme", "a scheme chooses among others, and has keys, tiers or another choice"),
    "nested-choice": ("scheme", "a scheme that chooses among others is named as a candidate or a tier"),
    "conflicting-candidates": ("scheme", "two candidates of a choice cut the tensor in units in different ways"),
    "choice-of-schemes": ("scheme", "one scheme is needed, and this one chooses among several"),
    "unused-name": ("scheme", "a parameter or a let is used nowhere (warning)"),
    "no-effect": ("scheme", "an entry changes nothing (warning)"),
    "not-with-holders": ("scheme", "an entry makes no sense beside 'balanced by holders'"),
}

_TOPOLOGY = {
    "no-topology": ("topology", "the file has no topology"),
    "several-topologies": ("topology", "the file has several topologies, and none was chosen"),
    "unknown-topology": ("topology", "there is no topology of that name"),
    "unknown-builder": ("topology", "a topology starts like one that does not exist"),
    "like-cycle": ("topology", "a topology starts like itself, at once or by way of others"),
    "late-like": ("topology", "a topology has something before it starts like another"),
    "unknown-unit": ("topology", "a quantity has a unit that does not exist, or one of something else"),
    "no-such-node": ("topology", "a link or a memory is of something that is not there"),
    "no-such-link": ("topology", "a link is to be removed that is not there"),
    "duplicate-node": ("topology", "two switches, or a switch and a level, have one name"),
    "unknown-format": ("topology", "a file is no topology of a kind that can be imported"),
    "malformed-topology": ("topology", "a file has the form of a topology, and not its contents"),
    "unread-links": ("topology", "a file has links of a kind that zenc does not read (warning)"),
    "links-not-in-file": ("topology", "a file leaves out the links between GPUs (warning)"),
    "unsafe-xml": ("topology", "an XML file declares a document type or an entity"),
    "topology-too-large": ("topology", "a topology has more nodes or links than any real one"),
    "no-ranks": ("topology", "a topology has no ranks"),
    "island": ("topology", "two ranks of a topology have no route to each other, over any number of links"),
    "bad-bandwidth": ("topology", "a bandwidth is not above 0"),
    "bad-latency": ("topology", "a latency is below 0, or longer than any real one"),
    "self-link": ("topology", "a link leads from a node to itself"),
    "duplicate-link": ("topology", "two nodes are linked twice in one direction"),
}

_VERIFICATION = {
    "bad-size": ("verification", "a plan is asked for with too few or too many ranks"),
    "tiers-do-not-divide": ("verification", "the ranks are not whole groups of the inner tiers"),
    "tier-incomplete": ("verification", "the push of an inner tier leaves its sums where the next tier can't go on"),
    "unmet-requirement": ("verification", "a schedule requires what does not hold for this number of ranks"),
    "no-candidate": ("verification", "no candidate of a choice allows this number of ranks"),
    "candidate-left-out": ("verification", "a candidate of a choice does not allow these numbers of ranks (warning)"),
    "schedule-too-long": ("verification", "a schedule loops or moves more than any real one"),
    "number-too-large": ("verification", "an expression leaves the numbers below 2^62 for some rank"),
    "bad-shift": ("verification", "an expression shifts by less than 0 or more than 62 bits for some rank"),
    "bad-log2": ("verification", "an expression takes log2 of a number below 1 for some rank"),
    "no-such-rank": ("verification", "a move names a rank that does not exist"),
    "no-such-part": ("verification", "a move names a part that does not exist"),
    "send-to-self": ("verification", "a move leads from a rank to itself"),
    "origin-merged": ("verification", "a move forwards one rank's contribution, which is merged already"),
    "nothing-to-send": ("verification", "a move forwards a contribution that its sender does not have"),
    "never-announced": ("verification", "the announce ends, and a rank lacks the index set of another"),
    "counted-twice": ("verification", "a contribution would be added twice"),
    "never-complete": ("verification", "the push ends, and no rank has a part of all ranks"),
    "sent-incomplete": ("verification", "the pull sends a part that is not complete"),
    "pulled-twice": ("verification", "the pull brings a part to a rank that has it complete"),
    "never-arrives": ("verification", "the pull ends, and a rank lacks a part"),
    "unequal-sums": ("verification", "ranks would add the same numbers in different orders"),
}

_PLACEMENT = {
    "wrong-topology-size": ("placement", "a scheme is held against a topology with another number of ranks"),
    "no-route": ("placement", "a move has no route over the topology"),
    "tier-mismatch": ("placement", "a tier is named after a level, and its groups have another size"),
    "tier-without-level": ("placement", "the groups of a tier match no level of the topology (warning)"),
    "contended-link": ("placement", "moves crowd a link, and the network holds the ranks up (warning)"),
    "memory-exceeded": ("placement", "the buffers of a rank, or of a machine, do not fit in its memory"),
}

_EXPLANATION = {
    "no-scheme-found": ("cost", "a search found no scheme that runs on a cluster"),
    "bad-load": ("explanation", "a prediction is asked for with a gradient or a rank that can't be"),
}

_COST = {
    "bad-profile": ("cost", "a profile, or a file with profiles, can't be"),
    "bad-calibration": ("cost", "a calibration, or a file with one, can't be"),
    "even-gradient": ("cost", "nobody said how units are spread, so they are spread evenly (warning)"),
    "bad-load": ("cost", "bytes or seconds of a training step can't be"),
    "busy-machine": ("cost", "a calibration was measured while the machine did something else (warning)"),
    "nothing-to-simulate": ("cost", "none of the schemes is for the numbers of ranks that are simulated"),
    "too-few-ranks": ("cost", "one rank alone has no network that could be measured"),
    "bad-measurement": ("cost", "a file holds no measurements that a report can read"),
    "plots-missing": ("cost", "a plot is asked for, and matplotlib is not installed"),
}

_EDITOR = {
    "editor-support-missing": ("editor", "the language server is asked for, and pygls is not installed"),
}

_DRAWING = {
    "drawing-too-large": ("drawing", "a drawing would show more ranks or moves than anyone can follow"),
    "no-such-step": ("drawing", "a drawing is asked for of steps that the scheme does not have"),
}

_RUN = {
    "unknown-target": ("build", "there are no templates for a target"),
    "unsafe-text": ("build", "a number can't be written into generated code"),
    "compiler-missing": ("build", "there is no C++ compiler, or it does not answer"),
    "cuda-compiler-missing": ("build", "there is nothing to compile kernels for GPUs with"),
    "unknown-arch": ("build", "kernels are asked for an architecture that they can't be compiled for"),
    "compile-failed": ("build", "the compiler refuses the generated code"),
    "build-timeout": ("build", "compiling, or waiting for a process that compiles, took too long"),
    "library-broken": ("build", "compiled kernels can't be loaded"),
    "wrong-abi": ("build", "compiled kernels belong to another version of zenc"),
    "cuda-unavailable": ("build", "CUDA's driver or NCCL is missing, or too old"),
    "no-such-gpu": ("build", "a GPU is asked for that this process does not see"),
    "forked": ("build", "a process was forked from one that had started CUDA, or had loaded a scheme"),
    "wrong-arch": ("build", "there are no kernels for a GPU, and nothing to compile them with"),
    "cache-unsafe": ("cache", "others can write the cache of compiled kernels"),
    "cache-not-writable": ("cache", "the cache of compiled kernels is read-only or full"),
    "artifact-not-written": ("artifact", "a compiled scheme can't be written where it should be"),
    "not-an-artifact": ("artifact", "a directory holds no compiled scheme"),
    "artifact-damaged": ("artifact", "a compiled scheme was edited or cut short"),
    "artifact-without-code": ("artifact", "a scheme that was compiled to a plan only is to be run"),
    "other-version": ("artifact", "a compiled scheme belongs to another version of zenc"),
    "compiled-parameters": ("artifact", "parameters are given for a scheme that is compiled already"),
    "wrong-size": ("artifact", "a compiled scheme is for another number of ranks"),
    "bad-plan": ("artifact", "some JSON is no plan"),
    "not-a-tensor": ("tensor", "what is to be summed is no tensor"),
    "unsupported-device": ("tensor", "a tensor lies on a device that the collective is not compiled for"),
    "other-gpu": ("tensor", "a tensor lies on another GPU than those that its collective summed before"),
    "unsupported-layout": ("tensor", "a tensor is neither dense nor sparse COO"),
    "unsupported-dtype": ("tensor", "a tensor holds numbers of a kind that can't be summed"),
    "unknown-operation": ("tensor", "an operation is neither sum nor mean"),
    "bad-capacity": ("tensor", "a capacity is no share of the units"),
    "no-capacity-mode": ("tensor", "a scheme has no capacity mode"),
    "not-capturable": ("tensor", "no CUDA graph can hold a call"),
    "tensor-too-large": ("tensor", "a tensor has 2^62 values or more, or 2^32 units under hierarchical hashing"),
    "unit-out-of-range": ("tensor", "an index of a sparse tensor lies outside its shape"),
    "out-of-memory": ("tensor", "there is no memory for a kernel's work space or tables"),
    "no-process-group": ("synchronisation", "there is no process group, or this rank is not in it"),
    "bad-deadline": ("synchronisation", "a deadline is no number of seconds above 0"),
    "unknown-sequence": ("synchronisation", "`ZENC_SEQUENCE` in the environment is neither `table` nor `compiled`"),
    "different-schemes": ("synchronisation", "the ranks hold different schemes"),
    "different-profilers": ("synchronisation", "the ranks would profile different steps"),
    "peer-failed": ("synchronisation", "another rank could not load its scheme"),
    "different-calls": ("synchronisation", "the ranks are in different calls"),
    "deadline": ("synchronisation", "a wait passed its deadline"),
    "peer-lost": ("synchronisation", "a connection to another rank ended"),
    "group-broken": ("synchronisation", "an earlier call of this group failed"),
    "call-failed": ("synchronisation", "a call ended with an error of this rank"),
    "reentrant-call": ("synchronisation", "a callback of a call waits for another call of its group"),
    "group-not-made": ("synchronisation", "NCCL could not make a group of the ranks"),
    "cuda-failed": ("synchronisation", "a function of CUDA failed in the middle of a call"),
    "corrupt-message": ("synchronisation", "a message has no header that fits this call"),
    "corrupt-segment": ("synchronisation", "the bytes of a message are no segment"),
}

_TORCH = {
    "not-ddp": ("torch", "a model is not wrapped in DistributedDataParallel"),
    "hook-taken": ("torch", "a model has a communication hook already"),
    "not-attached": ("torch", "a copy of a hook's state, or of a handle, is asked for its scheme"),
    "bad-state": ("torch", "a state to go on from is none that was saved"),
    "different-states": ("torch", "the ranks were given different states to go on from"),
    "unknown-writer": ("torch", "metrics can't be written to what was given"),
    "bad-trace": ("torch", "a file holds no timeline to be laid beside a measured one"),
    "sparse-already": ("torch", "a parameter with sparse gradients was asked for as a dense one"),
    "tied-to-dense": ("torch", "a sparse embedding shares its weights with a dense layer"),
    "unknown-parameter": ("torch", "the model has no parameter of the name that was given"),
    "unused-parameter": ("torch", "a sparse parameter took no part in a forward pass"),
    "nonfinite-norm": ("torch", "the norm of the gradients is NaN or infinite"),
}

_INTERNAL = {
    "internal": ("internal", "a bug in zenc"),
}

DIAGNOSTICS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        **_INSTALLATION,
        **_SYNTAX,
        **_LOAD,
        **_FORMAT,
        **_SCHEME,
        **_TOPOLOGY,
        **_VERIFICATION,
        **_PLACEMENT,
        **_EXPLANATION,
        **_COST,
        **_EDITOR,
        **_DRAWING,
        **_RUN,
        **_TORCH,
        **_INTERNAL,
    }
)
