# SPDX-License-Identifier: Apache-2.0
"""Token ids against the `tokenizers` package; any bytes; long texts."""

import os
import random
import time

import pytest

import reference_tokenizers
import text_tool
import texts

N_TEXTS = int(os.environ.get("PENSTOCK_TOKENIZER_TEXTS", "10000"))
MODELS = {
    "smollm2": (text_tool.SMOLLM2, reference_tokenizers.smollm2),
    "gemma": (text_tool.GEMMA, reference_tokenizers.gemma),
}


@pytest.fixture(scope="module")
def generated():
    generator = texts.Generator(seed=20240607)
    return [generator.text() for _ in range(N_TEXTS)]


@pytest.mark.parametrize("model", MODELS)
def test_ids_equal_the_reference(model, generated):
    path, reference = MODELS[model]
    answers = text_tool.run("encode", path, records=[t.encode() for t in generated])
    wanted = reference().encode_batch(generated, add_special_tokens=False)
    wrong = [(t, text_tool.ids(a), w.ids) for t, a, w in zip(generated, answers, wanted) if text_tool.ids(a) != w.ids]
    assert not wrong, f"{len(wrong)} of {len(generated)} differ, the first: {min(wrong, key=lambda w: len(w[0]))}"


@pytest.mark.parametrize("model", MODELS)
def test_every_code_point_alone(model):
    path, reference = MODELS[model]
    points = [c for chars in texts.code_points_by_category().values() for c in chars]
    points = [c for c in points if not 0xF0000 <= ord(c)]  # planes 15 and 16 are private, all alike
    answers = text_tool.run("encode", path, records=[f"a{c}b".encode() for c in points])
    wanted = reference().encode_batch([f"a{c}b" for c in points], add_special_tokens=False)
    wrong = [hex(ord(c)) for c, a, w in zip(points, answers, wanted) if text_tool.ids(a) != w.ids]
    assert not wrong


@pytest.mark.parametrize("model", MODELS)
def test_special_tokens_count_in_spans_only(model):
    path, reference = MODELS[model]
    fields = reference_tokenizers.gguf_fields(path)
    control = [i for i, kind in enumerate(fields["tokenizer.ggml.token_type"]) if kind == 3]
    spelled = [fields["tokenizer.ggml.tokens"][i] for i in control]
    records = [f"a {s} b".encode() for s in spelled]
    outside = [text_tool.ids(a) for a in text_tool.run("encode", path, records=records)]
    inside = [text_tool.ids(a) for a in text_tool.run("special", path, records=records)]
    assert not [s for s, ids in zip(spelled, outside) if set(ids) & set(control)]
    wanted = reference().encode_batch([r.decode() for r in records])
    assert not [s for s, ids, w in zip(spelled, inside, wanted) if ids != w.ids]


def byte_strings(n):
    rng = random.Random(7)
    for _ in range(n):
        size = rng.randint(0, 60)
        yield bytes(rng.choice([rng.randint(0, 255), rng.randint(0x80, 0xF4), 0x20, 0x61]) for _ in range(size))


@pytest.mark.parametrize("model", MODELS)
def test_any_bytes_round_trip(model):
    path, _ = MODELS[model]
    tokens = set(reference_tokenizers.gguf_fields(path)["tokenizer.ggml.tokens"])
    records = list(byte_strings(3000))
    if model == "smollm2":  # its vocabulary has no token at all for 21 bytes: those vanish, as in the reference
        alphabet = reference_alphabet()
        lost = bytes(b for b in range(256) if alphabet[b] not in tokens)
        assert len(lost) == 21
    else:
        lost = b""
    decoded = text_tool.run("decode", path, records=text_tool.run("encode", path, records=records))
    for record, answer in zip(records, decoded):
        assert answer == record.translate(None, delete=lost).replace("▁".encode(), b" ")


def reference_alphabet():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


@pytest.mark.parametrize("model", MODELS)
def test_detokenized_text_is_the_text(model, generated):
    path, reference = MODELS[model]
    sample = generated[: min(2000, N_TEXTS)]
    ids = text_tool.run("encode", path, records=[t.encode() for t in sample])
    shown = text_tool.run("detokenize", path, records=ids)
    wanted = [reference().decode(text_tool.ids(a)) for a in ids]
    assert [s.decode() for s in shown] == wanted


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("char", [b"a", b" ", b"\n", b"1", b".", b"\xf0\x9f\x98\x80", b"\xff", "▁".encode()])
def test_a_megabyte_of_one_character(model, char):
    path, _ = MODELS[model]
    start = time.monotonic()
    (answer,) = text_tool.run("encode", path, records=[char * ((1 << 20) // len(char))])
    assert len(answer) >= 4 or char == b"\xff"
    assert time.monotonic() - start < 10  # seconds; a quadratic merge takes hours
