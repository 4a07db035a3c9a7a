"""Existing clients do their ordinary work against a server: `run.py PORT [--host HOST] [CLIENT ...]`.

redis-cli, redis-benchmark, redis-py, ioredis, go-redis and jedis; the libraries are installed from their
registries, at the versions that the lock files name, into a cache outside the repository. The
server is emptied. Whatever cannot be run is a failure, unless --allow-missing names it.
"""

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kelvin" / "clients"
SECONDS_MAX = 600
# Copies libraries out of Maven's repository.
MAVEN_DEPENDENCY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"


class Missing(Exception):
    """A program that a client needs is not installed."""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port")
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"of {', '.join(CLIENTS)}")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--allow-missing", action="append", default=[], metavar="CLIENT",
                        help="pass, and say so, when the tools of this client are not installed")
    options = parser.parse_args()
    for name in options.clients + options.allow_missing:
        if name not in CLIENTS:
            parser.error(f"no client '{name}'")
    # Runs at the same time share what is installed there.
    CACHE.mkdir(parents=True, exist_ok=True)
    lock = open(CACHE / "lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    failed = []
    for name in options.clients or CLIENTS:
        try:
            CLIENTS[name](options.host, options.port)
            print(f"ok       {name}")
        except Missing as missing:
            allowed = name in options.allow_missing
            print(f"{'MISSING ' if allowed else 'FAILED  '} {name}: {missing} is not installed")
            if not allowed:
                failed.append(name)
        except (AssertionError, subprocess.SubprocessError) as error:
            print(f"FAILED   {name}: {error}")
            failed.append(name)
        sys.stdout.flush()
    sys.exit(1 if failed else 0)


def redis_cli(host, port):
    """The tool that everyone has at hand: single commands, piped ones, RESP3, and its modes."""
    need("redis-cli")
    cli = ["redis-cli", "-h", host, "-p", port]
    expect(cli + ["FLUSHALL"], "OK")
    expect(cli + ["SET", "k", "1"], "OK")
    expect(cli + ["INCR", "k"], "2")
    expect(cli + ["-3", "GET", "k"], "2")
    expect(cli + ["-n", "2", "GET", "k"], "")
    expect(cli + ["--no-raw", "GET", "missing"], "(nil)")
    expect(cli + ["--no-raw", "MGET", "k", "missing"], '1) "2"\n2) (nil)')
    expect(cli, "OK\nQUEUED\nQUEUED\nOK\n3", text="MULTI\nSET a 1\nINCR k\nEXEC\n")
    expect(cli + ["NOSUCH"], "ERR unknown command 'NOSUCH', with args beginning with: ")
    expect(cli + ["-x", "SET", "binary"], "OK", text="\x01\x02 three")
    expect(cli + ["STRLEN", "binary"], "8")
    many = "".join(f"*3\r\n$3\r\nSET\r\n$5\r\np{index:04}\r\n$1\r\nv\r\n" for index in range(5000))
    piped = run(cli + ["--pipe"], text=many)
    assert "errors: 0, replies: 5000" in piped, piped
    found = run(cli + ["--scan", "--pattern", "p*"]).split()
    assert len(set(found)) == 5000, f"--scan found {len(set(found))} keys of 5000"
    assert "redis_version" in run(cli + ["INFO", "server"])
    assert "Biggest string" in run(cli + ["--bigkeys"])
    assert "Biggest string" in run(cli + ["--memkeys"])


def redis_benchmark(host, port):
    """Every test of it that needs only strings and keys, plain and pipelined."""
    need("redis-benchmark")
    command = ["redis-benchmark", "-h", host, "-p", port, "-q", "-n", "20000", "-r", "1000"]
    for more in (["-P", "1"], ["-P", "32"], ["-P", "16", "--threads", "2"], ["-3", "-P", "4"]):
        output = run(command + more + ["-t", "ping,set,get,incr,mset", "-d", "512"])
        for test in ("PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "MSET (10 keys)"):
            assert f"{test}: " in output, f"no figure for {test}: {output}"
        assert "rror" not in output, output


def redis_py(host, port):
    python = CACHE / "venv" / "bin" / "python"
    if not python.exists():
        run([sys.executable, "-m", "venv", CACHE / "venv"])
    run([python, "-m", "pip", "install", "--quiet", "-r", HERE / "redis_py/requirements.txt"])
    show([python, HERE / "redis_py/client.py", host, port])


def ioredis(host, port):
    need("node")
    need("npm")
    # Installed in a copy, so that the checkout stays clean.
    copy = CACHE / "ioredis"
    copy.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json", "client.js", "data_types.js"):
        shutil.copy(HERE / "ioredis" / name, copy)
    run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=copy)
    show(["node", "client.js", host, port], cwd=copy)


def go_redis(host, port):
    need("go")
    show(["go", "run", "-mod=readonly", ".", host, port], cwd=HERE / "go_redis")


def jedis(host, port):
    # Of the JDK: the one source file is compiled as it is started.
    need("javac")
    pom, lib = HERE / "jedis/pom.xml", CACHE / "jedis" / "lib"
    # Maven takes its time to find that nothing is to be done: it is asked when the versions change.
    installed = CACHE / "jedis" / "pom.xml"
    if not installed.exists() or installed.read_bytes() != pom.read_bytes():
        need("mvn")
        shutil.rmtree(lib, ignore_errors=True)
        run(["mvn", "--batch-mode", "--quiet", "--file", pom, f"-Dmaven.repo.local={CACHE}/jedis/repository",
             f"{MAVEN_DEPENDENCY}:copy-dependencies", f"-DoutputDirectory={lib}"])
        shutil.copy(pom, installed)
    show(["java", "-cp", lib / "*", HERE / "jedis/Client.java", host, port])


CLIENTS = {
    "redis-cli": redis_cli,
    "redis-benchmark": redis_benchmark,
    "redis-py": redis_py,
    "ioredis": ioredis,
    "go-redis": go_redis,
    "jedis": jedis,
}


def need(program):
    if shutil.which(program) is None:
        raise Missing(program)


def run(command, text=None, cwd=None):
    """Runs a command to its end and returns what it printed; an exit code but 0 is a failure."""
    done = subprocess.run(list(map(str, command)), input=text, cwd=cwd, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS_MAX)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}"
    return done.stdout


def show(command, cwd=None):
    for line in run(command, cwd=cwd).splitlines():
        print(f"         {line}")


def expect(command, reply, text=None):
    """Compares what a command prints, but for empty lines at the end."""
    output = subprocess.run(command, input=text, text=True, timeout=SECONDS_MAX,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    assert output.rstrip("\n") == reply, f"{command}: {output!r}, expected {reply!r}"


if __name__ == "__main__":
    main()
