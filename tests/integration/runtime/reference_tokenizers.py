# SPDX-License-Identifier: Apache-2.0
"""The same tokenizers, made with the `tokenizers` package."""

import functools

import gguf
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

import text_tool


@functools.cache
def gguf_fields(path):
    reader = gguf.GGUFReader(path)
    return {k: f.contents() for k, f in reader.fields.items() if k.startswith("tokenizer.")}


@functools.cache
def smollm2():
    """From the file's vocabulary and merges: digits alone, then GPT-2's byte level."""
    fields = gguf_fields(text_tool.SMOLLM2)
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"]]
    t = tokenizers.Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([s for s, kind in zip(tokens, fields["tokenizer.ggml.token_type"]) if kind == 3])
    return t


@functools.cache
def gemma():
    return tokenizers.Tokenizer.from_file(str(text_tool.GEMMA_TOKENIZER / "tokenizer.json"))
