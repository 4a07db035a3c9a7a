#!/usr/bin/env bash
# Installs what `make build` (argument: build) or `make test` (argument: test) needs and is not
# there yet. On Debian as root, or with sudo.
set -euo pipefail

packages=()
want() { command -v "$1" >/dev/null 2>&1 || packages+=("$2"); }

want cc build-essential
want make build-essential
if [ "${1:-build}" = test ]; then
    want redis-server redis-server
    want redis-cli redis-tools
    want tclsh tcl
    want openssl openssl
    want python3 python3
    python3 -c 'import venv, ensurepip' 2>/dev/null || packages+=(python3-venv)
    want node nodejs
    want npm npm
    want chromium chromium
    want go golang-go
    want javac default-jdk-headless
    want mvn maven
    want git git
fi
if ! command -v cargo >/dev/null 2>&1; then
    want curl curl
    packages+=(ca-certificates)
fi

if [ ${#packages[@]} -gt 0 ]; then
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get update -q
    # Debian starts services as it installs them; the tests start their own redis-server.
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -y -q --no-install-recommends "${packages[@]}"
fi

if ! command -v cargo >/dev/null 2>&1; then
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
        sh -s -- -y --profile minimal --component rustfmt --component clippy
fi
