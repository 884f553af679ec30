#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference answers that `make check-reference` compares with.

  python3 -m venv V && V/bin/pip install torch transformers==5.24.0 gguf accelerate
  V/bin/python tests/golden/make_golden.py smollm2|gemma3

transformers loads the GGUF file in float32 on the CPU.  For each prompt of prompts.json: 64 greedy
tokens (not stopped by an end token), then one pass over prompt and answer that keeps, for every
position, the log-sum-exp of the logits, their maximum, the largest magnitude, and the 256 best
tokens.  For text.txt: the first 2,000 tokens and the log-probability of each but the first.

File (little-endian, then compressed with xz): "PGLD", u32 version 1, vocabulary, top, prompts;
per prompt u32 n_prompt, n_total, i32 tokens[n_total], and per position f32 log_sum_exp, f32
maximum, f32 magnitude, u32 ids[top], u16 below[top] in units of 1/2048 under the maximum (65535:
that or more); then u32 n_text, i32 tokens[n_text], f32 log_probability[n_text - 1].
"""
import json
import lzma
import os
import pathlib
import struct
import sys

import golden
import numpy
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("PENSTOCK_CACHE", pathlib.Path.home() / ".cache/penstock"))
TOP = 256
UNITS = 2048
TEXT_TOKENS = 2000


def text_of(prompt, chat):
    text = prompt.get("text", "")
    if "file" in prompt:
        whole = (ROOT / prompt["file"]).read_text(encoding="utf-8")
        text += whole[prompt["first"] : prompt["first"] + prompt["length"]]
    if chat and prompt.get("chat"):
        return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    return text


def greedy(model, ids, count):
    out = list(ids)
    step = model(torch.tensor([ids]), use_cache=True)
    for _ in range(count):
        best = int(step.logits[0, -1].argmax())
        out.append(best)
        step = model(torch.tensor([[best]]), past_key_values=step.past_key_values, use_cache=True)
    return out


def write_positions(out, logits):
    top = logits.topk(TOP, dim=-1)
    sums = logits.logsumexp(-1).numpy()
    magnitude = logits.abs().amax(-1).numpy()
    values = top.values.numpy()
    ids = top.indices.numpy().astype("<u4")
    for i, row in enumerate(values):
        below = numpy.minimum(numpy.rint((row[0] - row) * UNITS), 65535).astype("<u2")
        out.append(struct.pack("<fff", sums[i], row[0], magnitude[i]))
        out.append(ids[i].tobytes() + below.tobytes())


def main():
    name = sys.argv[1]
    torch.set_num_threads(2)
    path = CACHE / "models"
    tokenizer = AutoTokenizer.from_pretrained(path, gguf_file=golden.FILES[name])
    model = AutoModelForCausalLM.from_pretrained(path, gguf_file=golden.FILES[name], dtype=torch.float32)
    model.eval()
    spec = json.loads((HERE / "prompts.json").read_text(encoding="utf-8"))
    chat = name == "smollm2"
    out = [b"PGLD", struct.pack("<IIII", 1, model.config.vocab_size, TOP, len(spec["prompts"]))]
    with torch.no_grad():
        for prompt in spec["prompts"]:
            ids = tokenizer(text_of(prompt, chat))["input_ids"]
            if prompt["name"].startswith("long"):
                assert len(ids) > 700, (prompt["name"], len(ids))
            whole = greedy(model, ids, spec["generate"])
            print(prompt["name"], len(ids), repr(tokenizer.decode(whole[len(ids) :])), flush=True)
            out.append(struct.pack("<II", len(ids), len(whole)))
            out.append(numpy.array(whole, dtype="<i4").tobytes())
            write_positions(out, model(torch.tensor([whole])).logits[0])
        text = (HERE / "text.txt").read_text(encoding="utf-8")
        ids = tokenizer(text)["input_ids"]
        assert len(ids) >= TEXT_TOKENS, len(ids)
        ids = ids[:TEXT_TOKENS]
        logits = model(torch.tensor([ids])).logits[0]
        probabilities = logits.log_softmax(-1)[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        print("perplexity", float((-probabilities.mean()).exp()))
        out.append(struct.pack("<I", len(ids)))
        out.append(numpy.array(ids, dtype="<i4").tobytes())
        out.append(probabilities.numpy().astype("<f4").tobytes())
    data = b"".join(out)
    packed = lzma.compress(data, preset=9)
    (HERE / f"{name}.golden.xz").write_bytes(packed)
    print(f"{len(data)} bytes, {len(packed)} compressed")


if __name__ == "__main__":
    main()
