"""Words and marks of the language and of other programs' files, and some foreign ones."""

WORDS = [
    "scheme", "schedule", "import", "push", "pull", "step", "for", "in", "if", "else", "let", "send", "require", "all",
    "strategy", "tensors", "above", "others", "on", "choose", "from",
    "part", "parts", "of", "to", "where", "and", "or", "not", "mod", "by", "then", "tier", "tier node(2): dense_ring",
    "topology", "levels", "link", "unlink", "switch", "memory", "like", "communication", "balance", "ring", "a", "rank",
    "size", "log2", "{", "}", "(", ")", ",", ":", "=", "==", "<", "<<", "..", "->", "+", "-", "*", "/", "^", "&", "|",
    ";", "%", "0", "1", "2.5", "0x7", "1e999", "3 GB/s", '"s"', "#", "\n", "\r", "\0\n", " ", "",
]  # fmt: skip
FOREIGN = [
    "<!DOCTYPE a>", "<system", "<cpu>", "</pci>", "<gpu dev=", "<nvlink target=", "<nic>", "<net speed=", "busid=",
    "tclass=", "<graphml>", "<node id=", "<edge source=", "<data key=", "nodes", "edges", "links", "rank", "bandwidth",
    "latency", "kind", "label", "hosts", "levels", "GPU0", "NIC0", "NV4", "X", "SYS", "PIX", "\t",
    '"nodes"', "[]", "null", "\0",
]  # fmt: skip
