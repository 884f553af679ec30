# SPDX-License-Identifier: Apache-2.0
"""The unmodified openai client, strict about every field of an answer, without retries."""

import time

import openai
import pytest

MESSAGES = [{"role": "user", "content": "Name three rivers."}]


@pytest.fixture(scope="module")
def client(chat):
    return openai.OpenAI(base_url=f"{chat.url}/v1", api_key="none", max_retries=0, timeout=60,
                         _strict_response_validation=True)


@pytest.fixture(scope="module")
def loose_client(client):
    """For streamed completions: the client's own type lacks the null finish_reason that they have."""
    return openai.OpenAI(base_url=client.base_url, api_key="none", max_retries=0, timeout=60)


def test_models(client):
    assert [m.id for m in client.models.list()] == ["chat"]
    assert client.models.retrieve("chat").owned_by == "penstock"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_chat(client):
    answer = client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=8, temperature=0)
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8
    assert abs(answer.created - time.time()) < 60


def test_chat_stream_equals_chat(client):
    whole = client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=24, temperature=0)
    chunks = list(client.chat.completions.create(
        model="chat", messages=MESSAGES, max_tokens=24, temperature=0, stream=True,
        stream_options={"include_usage": True}))
    body = [c for c in chunks if c.choices]
    assert [c.choices[0].delta.role for c in body] == ["assistant"] + [None] * (len(body) - 1)
    assert "".join(c.choices[0].delta.content or "" for c in body) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in body if c.choices[0].finish_reason] == ["length"]
    assert chunks[-1].usage == whole.usage and not chunks[-1].choices
    assert all(c.usage is None for c in chunks[:-1])
    assert len({(c.id, c.created, c.model) for c in chunks}) == 1


def test_stream_helper_accumulates(client):
    # the helper takes 'length' for a failure of its own, so end at a stop string
    with client.chat.completions.stream(model="chat", messages=MESSAGES, max_tokens=60, temperature=0,
                                        stop=["e"]) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.role == "assistant"
    assert final.choices[0].finish_reason == "stop"


def test_completion(client, loose_client):
    answer = client.completions.create(model="chat", prompt="Once upon a time", max_tokens=10, temperature=0)
    assert answer.choices[0].text and answer.choices[0].finish_reason == "length"
    assert client.completions.create(model="chat", prompt="Once").usage.completion_tokens <= 16
    streamed = loose_client.completions.create(model="chat", prompt="Once upon a time", max_tokens=10,
                                               temperature=0, stream=True)
    assert "".join(c.choices[0].text for c in streamed) == answer.choices[0].text


def test_prompts_as_token_ids(client):
    text = client.completions.create(model="chat", prompt=[504, 2, 3], max_tokens=4, temperature=0)
    nested = client.completions.create(model="chat", prompt=[[504, 2, 3]], max_tokens=4, temperature=0)
    assert text.choices[0].text == nested.choices[0].text and text.usage.prompt_tokens == 3


def test_seed_and_sampling(client):
    def draw(seed):
        return client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=16, temperature=1.2,
                                              top_p=0.9, seed=seed).choices[0].message.content
    assert draw(7) == draw(7)
    assert len({draw(seed) for seed in range(4)}) > 1


def test_stop_strings(client, loose_client):
    whole = client.completions.create(model="chat", prompt="1 2 3 4 5 6 7", max_tokens=30, temperature=0)
    text = whole.choices[0].text
    stop = text[len(text) // 2:len(text) // 2 + 3]
    cut = client.completions.create(model="chat", prompt="1 2 3 4 5 6 7", max_tokens=30, temperature=0, stop=stop)
    assert cut.choices[0].text == text[:text.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    streamed = loose_client.completions.create(model="chat", prompt="1 2 3 4 5 6 7", max_tokens=30,
                                               temperature=0, stop=["zzz", stop], stream=True)
    assert "".join(c.choices[0].text for c in streamed) == text[:text.index(stop)]
    assert cut.usage.completion_tokens <= whole.usage.completion_tokens


def test_content_parts_and_roles(client):
    plain = client.chat.completions.create(
        model="chat", max_tokens=4, temperature=0,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello there"}])
    parts = client.chat.completions.create(
        model="chat", max_tokens=4, temperature=0,
        messages=[{"role": "developer", "content": "Be brief."},
                  {"role": "user", "content": [{"type": "text", "text": "Hello "},
                                               {"type": "text", "text": "there"}]}])
    assert plain.usage.prompt_tokens == parts.usage.prompt_tokens
    assert plain.choices[0].message.content == parts.choices[0].message.content


def test_control_tokens_in_content_stay_text(client):
    def prompt_tokens(content):
        return client.chat.completions.create(model="chat", max_tokens=1, messages=[
            {"role": "user", "content": content}]).usage.prompt_tokens
    # as one control token it would add 1; as plain text it takes several
    assert prompt_tokens("a<|im_start|>") > prompt_tokens("a") + 2


def test_abort_in_mid_stream(client, chat):
    before = chat.metrics()["penstock_requests_finished_total"]
    stream = client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=2000, stream=True,
                                            extra_body={"ignore_eos": True})
    for _ in zip(range(3), stream):
        pass
    stream.close()
    metrics = chat.await_idle(timeout=5)
    assert metrics["penstock_requests_finished_total"] == before + 1


def test_errors_are_the_clients_own(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=MESSAGES)
    assert caught.value.code == "model_not_found" and caught.value.param == "model"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="chat", messages=MESSAGES, temperature=3)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="chat", prompt="word " * 9000)
    assert caught.value.code == "context_length_exceeded"
