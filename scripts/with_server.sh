#!/usr/bin/env bash
# Starts a tiered Kelvin on a free port, runs the given command with the port as last argument,
# and stops the server again. The server keeps little RAM, so that most values are on flash.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$HOME/.cache/kelvin/target}
cargo build --profile fast -p kelvin
data=$(mktemp -d)
NO_COLOR=1 "$target/fast/kelvin" server --port 0 --bind 127.0.0.1 --maxmemory 200mb \
    --dir "$data" --flash-path "$data" --flash-size 2gb --enable-debug-command yes --logfile "$data/log" &
server=$!
stop() {
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    rm -rf "$data"
}
trap stop EXIT
# It chooses its port itself: one that is chosen here may be taken before it is used.
port=
for _ in $(seq 600); do
    port=$(sed -n 's/.*ready to accept connections.* port=\([0-9]*\) .*/\1/p' "$data/log" 2>/dev/null) || true
    [ -n "$port" ] && break
    kill -0 "$server" || { cat "$data/log"; exit 1; }
    sleep 0.1
done
[ -n "$port" ] || { echo "the server does not start:"; cat "$data/log"; exit 1; }
"$@" "$port"
kill -0 "$server" || { echo "the server died:"; cat "$data/log"; exit 1; }
