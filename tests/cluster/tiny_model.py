# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file of a small seeded model that answers with nonsense: 2 layers of llama's kind,
9 heads on 3 KV heads, a token for each byte. Small enough for a GPU that is emulated. Bytes that cannot be
printed have logits of 0, so that its answers are text, a letter a token.

    tiny_model.py OUT.gguf
"""

import pathlib
import random
import struct
import sys

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_DIM, FF, CONTEXT = 2, 160, 9, 3, 16, 160, 256
END = 256  # the token after those of the bytes
PRINTED = {*range(0x20, 0x7f), END}
VOCAB = 257
U32, F32, STRING, ARRAY = 4, 6, 8, 9  # kinds of values
TENSOR_F32, TENSOR_F16 = 0, 1
ALIGNMENT = 32


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def byte_letters():
    """GPT-2's letter for each byte: itself if it can be printed, else the next one from U+0100 on."""
    plain = {*range(ord("!"), ord("~") + 1), *range(0xa1, 0xad), *range(0xae, 0x100)}
    others = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + others.index(b)) for b in range(256)]


def keys():
    """Name, kind, packed value."""
    def u32(name, value):
        return name, U32, struct.pack("<I", value)

    def text(name, value):
        return name, STRING, string(value)

    def array(name, kind, items):
        return name, ARRAY, struct.pack("<IQ", kind, len(items)) + b"".join(items)

    return [
        text("general.architecture", "llama"),
        u32("llama.block_count", LAYERS), u32("llama.embedding_length", WIDTH),
        u32("llama.feed_forward_length", FF), u32("llama.context_length", CONTEXT),
        u32("llama.attention.head_count", HEADS), u32("llama.attention.head_count_kv", KV_HEADS),
        u32("llama.attention.key_length", HEAD_DIM), u32("llama.attention.value_length", HEAD_DIM),
        ("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
        text("tokenizer.ggml.model", "gpt2"), text("tokenizer.ggml.pre", "gpt-2"),
        array("tokenizer.ggml.tokens", STRING, [string(t) for t in [*byte_letters(), "<end>"]]),
        array("tokenizer.ggml.token_type", U32 + 1, [struct.pack("<i", 3 if i == END else 1) for i in range(VOCAB)]),
        array("tokenizer.ggml.merges", STRING, []),
        u32("tokenizer.ggml.eos_token_id", END),
    ]


def shapes():
    """Name, numbers in, numbers out (0: a vector of norm weights)."""
    yield "token_embd", WIDTH, VOCAB
    yield "output", WIDTH, VOCAB
    yield "output_norm", WIDTH, 0
    for i in range(LAYERS):
        for name, n_in, n_out in (
                ("attn_norm", WIDTH, 0), ("attn_q", WIDTH, HEADS * HEAD_DIM), ("attn_k", WIDTH, KV_HEADS * HEAD_DIM),
                ("attn_v", WIDTH, KV_HEADS * HEAD_DIM), ("attn_output", HEADS * HEAD_DIM, WIDTH),
                ("ffn_norm", WIDTH, 0), ("ffn_gate", WIDTH, FF), ("ffn_up", WIDTH, FF), ("ffn_down", FF, WIDTH)):
            yield f"blk.{i}.{name}", n_in, n_out


def tensor(seeded, name, n_in, n_out):
    """Dimensions, type, bytes; rows keep the length of what they are multiplied with."""
    if n_out == 0:
        return [n_in], TENSOR_F32, struct.pack(f"<{n_in}f", *(seeded.uniform(0.5, 1.5) for _ in range(n_in)))
    limit = (3 / n_in) ** 0.5
    rows = [struct.pack(f"<{n_in}e", *(seeded.uniform(-limit, limit) for _ in range(n_in))) for _ in range(n_out)]
    if name == "output":
        rows = [row if i in PRINTED else bytes(len(row)) for i, row in enumerate(rows)]
    return [n_in, n_out], TENSOR_F16, b"".join(rows)


def pad(data):
    return data + bytes(-len(data) % ALIGNMENT)


def write(out, seed=1):
    seeded = random.Random(seed)
    infos, data = [], b""
    for name, n_in, n_out in shapes():
        dimensions, kind, numbers = tensor(seeded, name, n_in, n_out)
        infos.append(string(f"{name}.weight") + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions,
                                                            kind, len(data)))
        data += pad(numbers)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys()))
    head += b"".join(string(name) + struct.pack("<I", kind) + value for name, kind, value in keys())
    pathlib.Path(out).write_bytes(pad(head + b"".join(infos)) + data)


if __name__ == "__main__":
    write(sys.argv[1])
