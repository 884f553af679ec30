#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp reaches on the reference answers: the figures in peer.json.

  V/bin/pip install --no-binary llama-cpp-python llama-cpp-python==0.3.36 numpy
  V/bin/python tests/golden/peer_figures.py

Teacher-forced like tests/runtime/reference/reference.c, with the same definitions.
"""
import json
import os
import pathlib

import golden
import llama_cpp
import numpy

CACHE = pathlib.Path(os.environ.get("PENSTOCK_CACHE", pathlib.Path.home() / ".cache/penstock"))


def log_sum_exp(rows):
    best = rows.max(-1)
    return best + numpy.log(numpy.exp(rows - best[:, None], dtype=numpy.float64).sum(-1))


def logits(model, tokens):
    """Rows of logits, 64 positions at a time."""
    model.reset()
    for at in range(0, len(tokens), 64):
        chunk = tokens[at : at + 64].tolist()
        model.eval(chunk)
        yield at, model.scores[at : at + len(chunk)].astype(numpy.float64)


def figures(name):
    top, prompts, (text, probabilities) = golden.read(name)
    model = llama_cpp.Llama(
        str(CACHE / "models" / golden.FILES[name]), n_ctx=2048, n_threads=2, logits_all=True, verbose=False
    )
    n = same = wrong = 0
    kl = worst = 0.0
    for tokens, positions in prompts:
        for at, rows in logits(model, tokens):
            sums = log_sum_exp(rows)
            for row, total, p in zip(rows, sums, positions[at:]):
                reference = float(p["maximum"]) - p["below"] * golden.UNIT
                ours = row[p["ids"]]
                near = p["below"] < golden.FAR
                worst = max(worst, (numpy.abs(ours - reference)[near] / p["magnitude"]).max())
                log_p, log_q = reference - p["log_sum_exp"], ours - total
                rest_p, rest_q = 1 - numpy.exp(log_p).sum(), 1 - numpy.exp(log_q).sum()
                kl += (numpy.exp(log_p) * (log_p - log_q)).sum()
                if rest_p > 1e-9 and rest_q > 1e-9:
                    kl += rest_p * numpy.log(rest_p / rest_q)
                best = int(row.argmax()) == int(p["ids"][0])
                same += best
                wrong += not best and p["below"][1] * golden.UNIT > 2e-3 * p["magnitude"]
                n += 1
    loss = 0.0
    for at, rows in logits(model, text):
        sums = log_sum_exp(rows)
        for i in range(len(rows)):
            if at + i + 1 < len(text):
                loss -= rows[i, text[at + i + 1]] - sums[i]
    return {
        "positions": n,
        "max_relative": float(worst),
        "order_wrong": int(wrong),
        "mean_kl": float(kl / n),
        "top1": same / n,
        "perplexity": float(numpy.exp(loss / (len(text) - 1))),
        "reference_perplexity": float(numpy.exp(-probabilities.astype(numpy.float64).mean())),
    }


def main():
    out = {"peer": f"llama-cpp-python {llama_cpp.__version__}"}
    for name in golden.FILES:
        out[name] = figures(name)
        print(name, out[name], flush=True)
    (golden.HERE / "peer.json").write_text(json.dumps(out, indent=2) + "\n")


if __name__ == "__main__":
    main()
