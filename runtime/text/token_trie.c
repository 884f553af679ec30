/* SPDX-License-Identifier: Apache-2.0
 *
 * token_trie.c - first child, next sibling, in one array; node 0 is the root.
 *
 * The search starts once a byte of text, and nearly always ends there, so the root's children are
 * a table of 256; deeper nodes have few siblings.
 */
#include "runtime/text/token_trie.h"

#include "base/mem.h"

enum { NODES_MAX = 1 << 24 };

struct node {
    uint32_t child, sibling; /* 0: none */
    int32_t id;              /* -1: no token ends here */
    unsigned char byte;
};

struct token_trie {
    struct node *nodes;
    uint32_t n, cap;
    uint32_t first[256];
};

int token_trie_new(struct token_trie **ret, struct err *err)
{
    struct token_trie *t = mem_calloc(1, sizeof(*t));

    if (!t)
        return err_set(err, ERR_NO_MEMORY, "token trie");
    t->n = 1; /* the root; its node holds nothing, so it needs no memory yet */
    *ret = t;
    return 0;
}

void token_trie_free(struct token_trie *t)
{
    if (!t)
        return;
    mem_free(t->nodes);
    mem_free(t);
}

static uint32_t child_of(const struct token_trie *t, uint32_t node, unsigned char byte)
{
    uint32_t c;

    if (node == 0)
        return t->first[byte];
    for (c = t->nodes[node].child; c != 0 && t->nodes[c].byte != byte;)
        c = t->nodes[c].sibling;
    return c;
}

static int add_node(struct token_trie *t, uint32_t parent, unsigned char byte, struct err *err)
{
    if (t->n >= t->cap) {
        uint32_t cap = t->cap == 0 ? 64 : t->cap * 2;
        struct node *nodes = cap <= NODES_MAX ? mem_realloc(t->nodes, cap * sizeof(*nodes)) : NULL;

        if (!nodes)
            return err_set(err, ERR_NO_MEMORY, "token trie of %u nodes", cap);
        t->nodes = nodes;
        t->cap = cap;
    }
    t->nodes[t->n] = (struct node){.id = -1, .byte = byte};
    if (parent == 0) {
        t->first[byte] = t->n;
    } else {
        t->nodes[t->n].sibling = t->nodes[parent].child;
        t->nodes[parent].child = t->n;
    }
    t->n++;
    return 0;
}

int token_trie_add(struct token_trie *t, const char *text, size_t len, int32_t id, struct err *err)
{
    uint32_t node = 0;

    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)text[i];
        uint32_t child = child_of(t, node, byte);

        if (child == 0) {
            int r = add_node(t, node, byte, err);

            if (r < 0)
                return r;
            child = t->n - 1;
        }
        node = child;
    }
    if (t->nodes[node].id < 0)
        t->nodes[node].id = id;
    return 0;
}

int32_t token_trie_next(const struct token_trie *t, struct token_trie_walk *walk, const char *text,
                        size_t len)
{
    while (walk->len < len) {
        uint32_t child = child_of(t, walk->node, (unsigned char)text[walk->len]);

        if (child == 0)
            return -1;
        walk->node = child;
        walk->len++;
        if (t->nodes[child].id >= 0)
            return t->nodes[child].id;
    }
    return -1;
}
