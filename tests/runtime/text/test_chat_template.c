/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "base/str.h"
#include "runtime/text/chat_template.h"
#include "tests/support.h"

/* That the language means what jinja2 makes of it is tests/integration/runtime/test_template.py's
 * business; here are refusals, limits, spans and memory. */

static const char MESSAGES[] =
        "[{\"role\":\"user\",\"content\":\"<s> hi\"},{\"role\":\"robot\",\"content\":\"ok\","
        "\"n\":[1,2.5,null,true,{\"k\":\"v\"}]}]";

struct rendering {
    struct str text;
    struct chat_rendered out;
    cJSON *messages;
    struct chat_template *t;
};

static void rendering_init(struct rendering *r, const char *messages)
{
    struct err err;

    *r = (struct rendering){.text = STR_INIT(1 << 20)};
    r->out.text = &r->text;
    assert_ok(json_parse(messages, strlen(messages), &JSON_LIMITS_DEFAULT, &r->messages, &err),
              &err);
}

static void rendering_release(struct rendering *r)
{
    chat_rendered_release(&r->out);
    str_release(&r->text);
    cJSON_Delete(r->messages);
    chat_template_free(r->t);
}

static int render(struct rendering *r, const char *source, struct err *err)
{
    int ret = chat_template_new(source, strlen(source), "<s>", "</s>", &r->t, err);

    return ret < 0 ? ret : chat_template_render(r->t, r->messages, true, &r->out, err);
}

/* The text with [ ] around what is the template's own. */
static void mark_spans(const struct rendering *r, struct str *marked)
{
    size_t at = 0;

    for (size_t i = 0; i < r->out.n_spans; i++) {
        str_add(marked, r->text.data + at, r->out.spans[i].start - at);
        str_addc(marked, '[');
        str_add(marked, r->text.data + r->out.spans[i].start,
                r->out.spans[i].end - r->out.spans[i].start);
        str_addc(marked, ']');
        at = r->out.spans[i].end;
    }
    if (r->text.len > at)
        str_add(marked, r->text.data + at, r->text.len - at);
}

static void test_spans(void **state)
{
    static const struct {
        const char *source, *want;
    } cases[] = {
            {"a{{ 'b' }}{{ bos_token }}c", "[ab<s>c]"},
            {"{{ messages[0].content }}", "<s> hi"},
            {"<{{ messages[0].content }}>", "[<]<s> hi[>]"},
            {"{{ '<' + messages[0].content + '>' }}", "[<]<s> hi[>]"},
            {"{{ '<' ~ messages[0].content ~ 1 ~ '>' }}", "[<]<s> hi[1>]"},
            /* a well-known role is literal, any other is content; so is a role's name as content */
            {"<|{{ messages[0].role }}|>", "[<|user|>]"},
            {"<|{{ messages[1].role }}|>", "[<|]robot[|>]"},
            {"{{ ('a' + messages[0].content)[:3] }}", "[a]<s"},
            {"{{ ('a ' + messages[0].content + ' b').split() | join('|') }}", "[a|]<s>[|]hi[|b]"},
            {"{{ ('x' ~ messages[1].content ~ 'x').replace('o', '0') }}", "[x0]k[x]"},
            {"{{ (' x' ~ messages[1].content ~ ' ') | trim | upper }}", "[X]OK"},
            {"{{ messages[1].n | tojson }}", "[1, 2.5, null, true, {\"k\": \"v\"}]"},
            {"{{ messages[1].n }}", "[1, 2.5, None, True, {'k': 'v'}]"},
            {"{% set x %}a{{ messages[1].content }}b{% endset %}{{ x }}", "[a]ok[b]"},
            {"{% for c in 'a' + messages[1].content %}{{ c }}.{% endfor %}", "[a.]o[.]k[.]"},
            {"{{ messages[9] }}{{ nothing }}{{ none }}", "[None]"},
            {"{{ ['<', messages[1].content] | join }}{{ '<' if messages[1].content == 'ok' }}",
             "[<]ok[<]"},
            {"{{ 'ab'.join([messages[1].content, 'x'])[::-1] }}", "[xba]ko"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CLEANUP(str_release) struct str marked = STR_INIT(1000);
        struct rendering r;
        struct err err;

        rendering_init(&r, MESSAGES);
        assert_ok(render(&r, cases[i].source, &err), &err);
        if (strchr(cases[i].want, '{')) /* lists: the brackets are their own, all of it content */
            assert_int_equal(r.out.n_spans, 0);
        else
            mark_spans(&r, &marked);
        assert_string_equal(strchr(cases[i].want, '{') ? str_text(&r.text) : str_text(&marked),
                            cases[i].want);
        rendering_release(&r);
    }
}

/* What the subset lacks is refused when the template is loaded, with line and construct. */
static void test_refused_when_loaded(void **state)
{
    static const struct {
        const char *source, *want;
    } cases[] = {
            {"a\n{% macro m() %}", "line 2: tag 'macro' is not supported"},
            {"{% include 'x' %}", "line 1: tag 'include' is not supported"},
            {"{% call m() %}", "line 1: tag 'call' is not supported"},
            {"\n\n{{ x | nosuch }}", "line 3: filter 'nosuch' is not supported"},
            {"{{ x is nosuch }}", "line 1: test 'nosuch' is not supported"},
            {"{{ x.nosuch() }}", "line 1: method 'nosuch' is not supported"},
            {"{{ [].append(1) }}", "line 1: method 'append' is not supported"},
            {"{{ cycler('a') }}", "line 1: function 'cycler' is not supported"},
            {"{{ x.__class__.__mro__() }}", "line 1: method '__mro__' is not supported"},
            {"{{ x['y']() }}", "line 1: only functions and methods can be called"},
            {"{{ 2 ** 3 }}", "line 1: operator '**' is not supported"},
            {"{% for x in y recursive %}{% endfor %}",
             "line 1: a recursive for loop is not supported"},
            {"{{ x | map(y) }}", "line 1: 'map' by a name that is not a constant"},
            {"{{ x | map('nosuch') }}", "line 1: 'map' by 'nosuch' is not supported"},
            {"{{ x | selectattr('a', 'nosuch') }}",
             "line 1: 'selectattr' by 'nosuch' is not supported"},
            {"{{ x | default(1, 2, 3) }}", "line 1: wrong arguments for 'default'"},
            {"{{ x | default(default_value=1, default_value=2) }}",
             "line 1: wrong arguments for 'default'"},
            {"{{ x | tojson(sort_keys=true) }}", "line 1: 'tojson' has no argument 'sort_keys'"},
            {"{{ x | replace('a') }}", "line 1: 'replace' needs 2 arguments"},
            {"{{ x | default(boolean=true, 1) }}",
             "line 1: an argument without a name follows one with"},
            {"{{ raise_exception() }}", "line 1: 'raise_exception' needs 1 arguments"},
            {"{{ namespace(1) }}", "line 1: expected name=value, not '1'"},
            {"{% if x %}", "line 1: expected '{% endif %}', not the end"},
            {"{% if x %}{% endfor %}", "line 1: expected endif, not 'endfor'"},
            {"{% for x in y %}\n{% else %}\n{% endif %}", "line 3: expected endfor, not 'endif'"},
            {"{% endif %}", "line 1: unexpected 'endif'"},
            {"{% else %}", "line 1: unexpected 'else'"},
            {"{% break %}", "line 1: break or continue outside of a loop"},
            {"{% set x %}a", "line 1: expected '{% endset %}', not the end"},
            {"{% set 1 = 2 %}", "line 1: expected a name, not '1'"},
            {"{% set if = 2 %}", "line 1: expected a name, not 'if'"},
            {"{% set x.y %}", "line 1: expected '=', not the end of the tag"},
            {"{% for x y %}", "line 1: expected 'in', not 'y'"},
            {"{% %}", "line 1: expected a tag's name, not the end of the tag"},
            {"{{ }}", "line 1: expected an expression, not the end of the tag"},
            {"{{ a b }}", "line 1: expected '}}', not 'b'"},
            {"{{ (a }}", "line 1: unexpected '}'"},
            {"{{ [1, 2 }}", "line 1: unexpected '}'"},
            {"{{ a) }}", "line 1: unexpected ')'"},
            {"{{ {1 2} }}", "line 1: expected ':', not '2'"},
            {"{{ x[] }}", "line 1: expected an index, not the end of the tag"},
            {"{{ x[1:2:3:4] }}", "line 1: expected ']', not '4'"},
            {"{{ x. }}", "line 1: expected a name, not the end of the tag"},
            {"a\n{{ 'x", "line 2: a string without an end"},
            {"a\n{{ x", "line 2: a tag without an end"},
            {"a\n{# x", "line 2: a comment without an end"},
            {"a\n{% raw %}\n", "line 2: {% raw %} without an end"},
            {"{{ 99999999999999999999 }}", "line 1: bad number"},
            {"{{ 1x }}", "line 1: bad number"},
            {"{{ '\\N{DASH}' }}", "line 1: escape in a string is not supported"},
            {"{{ '\\ud800' }}", "line 1: escape in a string is not supported"},
            {"{{ '\\x4' }}", "line 1: escape in a string is not supported"},
            {"{{ a ! b }}", "line 1: unexpected character '!'"},
            {"{{ \xc3\xa9 }}", "line 1: unexpected character '?'"},
            {"\xff", "the template is not UTF-8"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct chat_template *t = NULL;
        struct err err = {0};

        assert_int_equal(
                chat_template_new(cases[i].source, strlen(cases[i].source), "", "", &t, &err),
                -ERR_INVALID);
        assert_null(t);
        assert_string_equal(err.msg, cases[i].want);
    }
}

static void test_refused_when_rendered(void **state)
{
    static const struct {
        const char *source, *want;
    } cases[] = {
            /* the template's own words, nothing before them */
            {"\n{{ raise_exception('roles must alternate, not ' ~ messages[1].role) }}",
             "roles must alternate, not robot"},
            {"\n{{ nothing.x }}", "line 2: 'nothing' is undefined"},
            {"{{ messages[0].x.y }}", "line 1: 'x' is undefined"},
            {"{{ 1 + 'a' }}", "line 1: int + str has no meaning"},
            {"{{ 9223372036854775807 + 1 }}", "line 1: a number is too large"},
            {"{{ -9223372036854775807 - 2 }}", "line 1: a number is too large"},
            {"{{ (-9223372036854775807 - 1) // -1 }}", "line 1: a number is too large"},
            {"{{ (-9223372036854775807 - 1) % -1 }}", "line 1: a number is too large"},
            {"{{ (-9223372036854775807 - 1) | abs }}", "line 1: abs of int"},
            {"{{ 1e300 | int }}", "line 1: a number is too large"},
            {"{{ none.strip() }}", "line 1: NoneType has no method 'strip'"},
            {"{{ nothing.strip() }}", "line 1: 'nothing' is undefined"},
            {"{{ {1: 2} }}", "line 1: a dictionary's key is int, not a string"},
            {"{% for a, b in [[1]] %}{% endfor %}", "line 1: 1 values for 2 names"},
            {"{% set messages.x = 1 %}", "line 1: only a namespace's attributes can be set"},
            {"{{ namespace(a=1) }}", "line 1: a Namespace cannot be printed"},
            {"{{ nothing | tojson }}", "line 1: a Undefined is not JSON"},
            {"{{ [1] | select('eq') | list }}", "line 1: wrong arguments for 'eq'"},
            {"{{ [1] | map }}", "line 1: map without a filter's or an attribute's name"},
            {"{{ 'a'[1:2:0] }}", "line 1: a slice in steps of 0"},
            {"{{ 'a' | tojson(indent=99) }}", "line 1: tojson indented by 99"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rendering r;
        struct err err = {0};

        rendering_init(&r, MESSAGES);
        assert_int_equal(render(&r, cases[i].source, &err), -ERR_INVALID);
        assert_string_equal(err.msg, cases[i].want);
        rendering_release(&r);
    }
}

/* Whatever a template does, it ends soon and stays small. */
static void test_limits(void **state)
{
    static const struct {
        const char *source, *want;
    } cases[] = {
            {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
             "too many steps"},
            {"{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}"
             "{% endfor %}",
             "too many steps"},
            {"{{ 'x' * 9223372036854775807 }}", "needs more than"},
            {"{{ 'x' * 200000000 }}", "needs more than"},
            {"{{ [1] * 9223372036854775807 }}", "needs more than"},
            {"{{ [1, 2] * 9223372036854775807 }}", "needs more than"},
            {"{{ [1, 2, 3] * 6148914691236517205 }}", "too long"}, /* 2^64 - 1 items */
            {"{{ [1, 2, 3, 4] * 9223372036854775807 }}", "too large"},
            {"{{ range(100001) }}", "range() of over"},
            {"{{ range(0, 99999999999) }}", "out of its limits"},
            {"{% for i in range(99999) %}0123456789012345678901234567890123456789{% endfor %}",
             "prompt is over"},
            {"{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}"
             "{% endfor %}",
             "nested over"},
            {"{% set ns = namespace(x={}) %}{% for i in range(999) %}"
             "{% set ns.x = {'a': ns.x} %}{% endfor %}",
             "nested over"},
            {"{% set x = 'ab' * 1000000 %}{% for i in range(9999) %}{{ 'z' in x }}{% endfor %}",
             "too many steps"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rendering r;
        struct err err = {0};

        rendering_init(&r, MESSAGES);
        assert_int_equal(render(&r, cases[i].source, &err), -ERR_INVALID);
        if (!strstr(err.msg, cases[i].want))
            fail_msg("'%s': '%s'", cases[i].source, err.msg);
        rendering_release(&r);
    }
}

/* n times 'open', then 'middle', then n times 'close'. */
static int parse_nested(const char *open, const char *middle, const char *close, size_t n,
                        struct err *err)
{
    CLEANUP(str_release) struct str s = STR_INIT(CHAT_TEMPLATE_BYTES_MAX);
    CLEANUP(chat_template_freep) struct chat_template *t = NULL;

    for (size_t i = 0; i < n; i++)
        str_adds(&s, open);
    str_adds(&s, middle);
    for (size_t i = 0; i < n; i++)
        str_adds(&s, close);
    assert_ok(str_check(&s, "template", err), err);
    return chat_template_new(s.data, s.len, "", "", &t, err);
}

static void test_depth(void **state)
{
    struct err err = {0};

    (void)state;
    assert_ok(parse_nested("{% if x %}", "", "{% endif %}", 40, &err), &err);
    assert_int_equal(parse_nested("{% if x %}", "", "{% endif %}", 400, &err), -ERR_INVALID);
    assert_int_equal(parse_nested("{{ ", "((((((((((1))))))))))", " }}", 1, &err), 0);
    assert_int_equal(parse_nested("{{ (", "1", ") }}", 400, &err), -ERR_INVALID);
    assert_int_equal(parse_nested("{{ not ", "1 }}", "", 4000, &err), -ERR_INVALID);
    assert_int_equal(parse_nested("{{ - ", "1 }}", "", 4000, &err), -ERR_INVALID);
    assert_int_equal(parse_nested("{{ 1 }}", "{{ 1", " + 1", 100, &err), -ERR_INVALID);
    assert_int_equal(parse_nested("", "{{ 1", " + 1", 4000, &err), -ERR_INVALID);
    assert_int_equal(parse_nested("", "{{ x", ".a", 4000, &err), -ERR_INVALID);
    assert_int_equal(parse_nested("", "{{ x", " | trim", 4000, &err), -ERR_INVALID);
    assert_int_equal(parse_nested("{{ 1 if x else ", "1 }}", "", 4000, &err), -ERR_INVALID);
}

static void test_too_large(void **state)
{
    CLEANUP(mem_freep) char *source = mem_calloc(CHAT_TEMPLATE_BYTES_MAX + 1, 1);
    struct chat_template *t = NULL;
    struct err err = {0};

    (void)state;
    memset(source, 'x', CHAT_TEMPLATE_BYTES_MAX + 1);
    assert_int_equal(chat_template_new(source, CHAT_TEMPLATE_BYTES_MAX + 1, "", "", &t, &err),
                     -ERR_INVALID);
    assert_ok(chat_template_new(source, CHAT_TEMPLATE_BYTES_MAX, "", "", &t, &err), &err);
    chat_template_free(t);
}

static int render_again(struct rendering *r, struct err *err)
{
    chat_rendered_release(&r->out);
    str_release(&r->text);
    return chat_template_render(r->t, r->messages, true, &r->out, err);
}

static void test_out_of_memory(void **state)
{
    static const char source[] =
            "{% set ns = namespace(n=0) %}{% for m in messages if m.role %}{% set x %}<{{ m.role "
            "}}>"
            "{% endset %}{{ x ~ m.content | trim | upper }}{% set ns.n = ns.n + 1 %}"
            "{{ m.n | tojson(indent=1) if m.n else 'none'.split('n')[::2] }}{% endfor %}{{ ns.n }}"
            "{{ [1, 'a'] | map('string') | join(',') }}{{ 'a-b'.replace('-', '+') }}";
    struct rendering r;
    struct err err;

    (void)state;
    rendering_init(&r, MESSAGES);
    mem_sweep(chat_template_new(source, strlen(source), "<s>", "</s>", &r.t, &err));
    mem_sweep(render_again(&r, &err));
    assert_string_equal(str_text(&r.text),
                        "<user><S> HI['', 'e']<robot>OK[\n 1,\n 2.5,\n null,\n true,\n {\n  \"k\": "
                        "\"v\"\n }\n]21,aa+b");
    rendering_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_spans),
            cmocka_unit_test(test_refused_when_loaded),
            cmocka_unit_test(test_refused_when_rendered),
            cmocka_unit_test(test_limits),
            cmocka_unit_test(test_depth),
            cmocka_unit_test(test_too_large),
            cmocka_unit_test(test_out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
