#!/bin/sh
# What stands between nodes and what they talk to, in tests that cut and slow connections: toxiproxy. Installs it where it
# is missing.
set -eu
VERSION=v2.12.0

if ! command -v toxiproxy-server > /dev/null && [ ! -x "$HOME/go/bin/toxiproxy-server" ]; then
    if ! command -v go > /dev/null; then
        echo "toxiproxy is missing, and Go to build it: go install github.com/Shopify/toxiproxy/v2/cmd/server@$VERSION" >&2
        exit 1
    fi
    echo "building toxiproxy $VERSION"
    # Its program is called `server`: built apart from others of that name.
    GOBIN="$(mktemp -d)"
    export GOBIN
    go install "github.com/Shopify/toxiproxy/v2/cmd/server@$VERSION"
    mkdir -p "$HOME/go/bin"
    mv "$GOBIN/server" "$HOME/go/bin/toxiproxy-server"
    rmdir "$GOBIN"
fi
