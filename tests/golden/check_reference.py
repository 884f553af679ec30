#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make check-reference: both models on both devices beside the reference answers.

  tests/golden/check_reference.py REFERENCE_PROGRAM [smollm2|gemma3 ...]

Needs the models (scripts/fetch-models.sh); the answers are committed.  The bounds:
  ref: greatest difference 1e-3 of the largest logit, the same best token wherever the reference's
       two best are further apart than twice that
  cpu: mean KL at most 1.1 x the peer's, top-1 agreement at most half a point below the peer's,
       perplexity within 1 % of the reference (peer.json has the peer's figures)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import golden

CACHE = pathlib.Path(os.environ.get("PENSTOCK_CACHE", pathlib.Path.home() / ".cache/penstock"))


def measure(program, model, answers, device):
    done = subprocess.run([program, str(model), answers, device], check=True, stdout=subprocess.PIPE, text=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def checks(device, ours, peer):
    """(what, value, bound, ok)"""
    ratio = float(ours["perplexity"]) / float(ours["reference_perplexity"])
    rows = [("perplexity / reference", ratio, "0.99..1.01", 0.99 <= ratio <= 1.01)]
    if device == "ref":
        worst = float(ours["max_relative"])
        wrong = int(ours["order_wrong"])
        rows.append(("max |difference| / max |logit|", worst, "<= 0.001", worst <= 1e-3))
        rows.append(("best token wrong", wrong, "0", wrong == 0))
    else:
        kl, top1 = float(ours["mean_kl"]), float(ours["top1"])
        rows.append(("mean KL", kl, f"<= {1.1 * peer['mean_kl']:.6f}", kl <= 1.1 * peer["mean_kl"]))
        rows.append(("top-1 agreement", top1, f">= {peer['top1'] - 0.005:.6f}", top1 >= peer["top1"] - 0.005))
    return rows


def main():
    program = sys.argv[1]
    peers = json.loads((golden.HERE / "peer.json").read_text())
    passed = failed = 0
    for name in sys.argv[2:] or golden.FILES:
        model = CACHE / "models" / golden.FILES[name]
        with tempfile.NamedTemporaryFile() as answers:
            answers.write(golden.raw(name))
            answers.flush()
            for device in ("ref", "cpu"):
                ours = measure(program, model, answers.name, device)
                print(f"{name} on {ours['device']}, {ours['positions']} positions:")
                for what, value, bound, ok in checks(device, ours, peers[name]):
                    print(f"  {'ok  ' if ok else 'FAIL'} {what:32} {value:.6g} (want {bound})", flush=True)
                    passed, failed = passed + ok, failed + (not ok)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
