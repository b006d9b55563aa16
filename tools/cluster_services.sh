#!/bin/sh
# What a cluster of nodes stands on, for tests and the demo: PostgreSQL, and versitygw, an S3 over a folder. Installs what
# is missing, as far as it may.
set -eu
VERSION=v1.8.0

if ! command -v pg_ctl > /dev/null && ! ls /usr/lib/postgresql/*/bin/pg_ctl > /dev/null 2>&1; then
    if command -v apt-get > /dev/null && [ "$(id -u)" = 0 ]; then
        echo "installing PostgreSQL"
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql > /dev/null
    else
        echo "PostgreSQL is missing (Debian: apt-get install postgresql)" >&2
        exit 1
    fi
fi
if ! command -v versitygw > /dev/null && [ ! -x "$HOME/go/bin/versitygw" ]; then
    if ! command -v go > /dev/null; then
        echo "versitygw is missing, and Go to build it: go install github.com/versity/versitygw/cmd/versitygw@$VERSION" >&2
        exit 1
    fi
    echo "building versitygw $VERSION (some minutes)"
    go install "github.com/versity/versitygw/cmd/versitygw@$VERSION"
fi
