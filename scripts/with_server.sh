#!/usr/bin/env bash
# Starts a tiered Kelvin on a free port, runs the given command with the port as last argument,
# and stops the server again. The server keeps little RAM, so that most values are on flash.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$HOME/.cache/kelvin/target}
cargo build --profile fast -p kelvin
data=$(mktemp -d)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$target/fast/kelvin" server --port "$port" --bind 127.0.0.1 --maxmemory 200mb \
    --flash-path "$data" --flash-size 2gb --enable-debug-command yes --logfile "$data/log" &
server=$!
stop() {
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    rm -rf "$data"
}
trap stop EXIT
for _ in $(seq 100); do
    redis-cli -p "$port" ping >/dev/null 2>&1 && break
    kill -0 "$server" || { cat "$data/log"; exit 1; }
    sleep 0.1
done
"$@" "$port"
kill -0 "$server" || { echo "the server died:"; cat "$data/log"; exit 1; }
