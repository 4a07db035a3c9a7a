"""Runs the tests of Valkey's own suite that apply, against a running server.

    run.py PORT [--host HOST] [--unit UNIT ...] [--demote] [--no-skip] [--json FILE]

The suite comes from a checkout outside the repository: the directory in VALKEY_SRC, or one commit
of the public repository fetched into a cache, or else nothing is run and that is said. The server
must allow DEBUG to local clients, and it is emptied. With --demote, what a command has worked on is
demoted behind it. Tests in skip.txt are left out, with those that the suite itself tags as needing
replication or RDB files.

An unexpected error ends a run of the suite, not only the test. Such a test counts as failed, and
its unit is run again without it. The suite is run from a copy with the few changes in CHANGES.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = "https://github.com/valkey-io/valkey"
# One commit, so that the same tests run tomorrow.
COMMIT = "55bbbe09a3b37a98c907dbfbc225768ff253e84f"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kelvin" / "valkey"
UNITS = ["unit/type/string", "unit/type/incr", "unit/type/hash", "unit/type/list",
         "unit/type/list-2", "unit/type/list-3", "unit/type/set", "unit/type/zset",
         "unit/type/stream", "unit/type/stream-cgroups", "unit/bitops", "unit/bitfield",
         "unit/hyperloglog", "unit/geo", "unit/sort", "unit/scan", "unit/keyspace", "unit/expire",
         "unit/multi", "unit/pubsub", "unit/pubsubshard", "unit/protocol", "unit/querybuf",
         "unit/latency-monitor", "unit/dump",
         "integration/corrupt-dump", "integration/corrupt-dump-fuzzer"]
# What tests of this release do not need: a replica's stream, and files.
TAGS = "-needs:repl -needs:save"
# (file, what stands there, what is to stand there)
CHANGES = [
    # Redis 7.0 knows all lists as quicklists, and sets with other members than numbers as hash tables.
    ("support/test.tcl", "proc assert_encoding {enc key} {\n",
     "proc assert_encoding {enc key} {\n    if {$enc eq \"listpack\" && [r type $key] eq \"list\"} {set enc quicklist}\n"
     "    if {$enc eq \"listpack\" && [r type $key] eq \"set\"} {set enc hashtable}\n"),
    # Each unit begins with an empty function library; this release has none.
    ("support/server.tcl", "r function flush\n", "catch {r function flush}\n"),
    # It counts keys, and relies on a test for another data type to have removed the earlier ones.
    ("unit/keyspace.tcl", "test {MOVE basic usage} {\n", "test {MOVE basic usage} {\nr flushdb\n"),
    # Only its last part, which needs a replica, needs servers of its own.
    ("unit/pubsubshard.tcl", 'start_server {tags {"pubsubshard external:skip"}} {\n    test',
     'start_server {tags {"pubsubshard"}} {\n    test'),
    # Parts that need an append-only file, without the suite's tag for it.
    ("unit/type/stream.tcl", 'needs:debug"} overrides {appendonly yes',
     'needs:save"} overrides {appendonly yes'),
    ("unit/type/stream-cgroups.tcl", 'needs:debug"} overrides {appendonly yes',
     'needs:save"} overrides {appendonly yes'),
    # Redis 7.0 calls every list a quicklist.
    ("unit/sort.tcl", '16 lpush listpack "Listpack"', '16 lpush quicklist "Listpack"'),
    ("unit/sort.tcl", "assert_encoding listpack $key", "assert_encoding quicklist $key"),
    # Newer options, in the midst of tests of others.
    ("unit/scan.tcl", "set res [r hscan hash 0 count 1000 novalues]\n            assert_equal [lsort $keys2] [lsort [lindex $res 1]]\n", ""),
    ("unit/scan.tcl", "set res [r zscan zset 0 count 1000 noscores]\n            assert_equal [lsort $keys2] [lsort [lindex $res 1]]\n", ""),
    # Damaged payloads need no server of their own. What Valkey takes when it does not look, and ends by an assertion
    # for later, may be refused; where its log is to say so, the server is to be there.
    ("integration/corrupt-dump.tcl", '"external:skip"} {\n',
     '} {\nproc may_restore {args} {catch {r restore {*}$args}}\n'),
    ("integration/corrupt-dump.tcl", "\n        r RESTORE _stream 0 ", "\n        may_restore _stream 0 "),
    ("integration/corrupt-dump.tcl", "\n        r restore _stream 0 ", "\n        may_restore _stream 0 "),
    ("integration/corrupt-dump.tcl", "\n         r restore _hashbig 0 ", "\n        may_restore _hashbig 0 "),
    # An option that Redis hides.
    ("integration/corrupt-dump.tcl", " use-exit-on-panic yes", ""),
    ("integration/corrupt-dump-fuzzer.tcl", " use-exit-on-panic yes", ""),
    ("integration/corrupt-dump-fuzzer.tcl", ' "external:skip"', ""),
    ("integration/corrupt-dump-fuzzer.tcl", "            set stdout [srv 0 stdout]\n", ""),
    ("integration/corrupt-dump-fuzzer.tcl", "[find_valgrind_errors [srv 0 stderr] false]", '""'),
    ("integration/corrupt-dump-fuzzer.tcl", "[sanitizer_errors_from_file [srv 0 stderr]]", '""'),
    ("integration/corrupt-dump-fuzzer.tcl", 'write_log_line 0 "corrupt', 'puts "corrupt'),
    # A payload may claim more than there is memory for.
    ("integration/corrupt-dump-fuzzer.tcl", '{[string match "ERR*" $err]}',
     '{[string match "ERR*" $err] || [string match "OOM*" $err]}'),
    ("support/util.tcl", "proc verify_log_message {srv_idx pattern from_line} {\n",
     "proc verify_log_message {srv_idx pattern from_line} {\n    return [r ping]\n"),
    ("support/util.tcl", "proc count_log_message {srv_idx pattern} {\n",
     'proc count_log_message {srv_idx pattern} {\n    r ping\n    return [expr {$pattern ne "crashed by signal"}]\n'),
    # Kelvin looks for elements that are there twice whatever it is told.
    ("integration/corrupt-dump.tcl", "# In the past, it generated a broken protocol and left the client hung in sdiff\n", "if {0} {\n"),
    ("integration/corrupt-dump.tcl", "assert_equal {0 2 4 6 8 _1 _3 _5 _9} [lsort [r sdiff _key]]\n", "}\n"),
]
RERUNS_MAX = 30
SECONDS_MAX = 900
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
OUTCOME = re.compile(r"^\[(ok|err|skip|ignore|exception)\]: (.*?)(?: \(\d+ ms\))?$")
CULPRIT = re.compile(r'^"test (?:\{(.*)\}|"(.*)") \{$|^"test (?:\{(.*)\}|"(.*)")', re.M)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("port")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--unit", action="append", help="only this unit; may be repeated")
    parser.add_argument("--demote", action="store_true", help="have each command find cold values")
    parser.add_argument("--no-skip", action="store_true", help="run what skip.txt leaves out, too")
    parser.add_argument("--json", help="write the outcome of every test to this file")
    options = parser.parse_args()
    source = find_source()
    if source is None:
        print("SKIPPED: no Valkey checkout. Set VALKEY_SRC to one; fetching it failed.")
        sys.exit(0)
    skipped = [] if options.no_skip else read_skips()
    outcomes, reads = {}, 0
    with tempfile.TemporaryDirectory(prefix="valkey-tests-") as copy:
        copy_suite(source, Path(copy))
        for unit in options.unit or UNITS:
            set_debug(options.host, options.port, options.demote)
            outcomes[unit] = run_unit(copy, options.host, options.port, unit, skipped)
            show(unit, outcomes[unit])
            # Tests reset the counter.
            reads += flash_reads(options.host, options.port)
    if options.demote and not reads:
        raise SystemExit("nothing was read from flash")
    if options.json:
        Path(options.json).write_text(json.dumps(outcomes, indent=1) + "\n")
    failures = sum(len(outcome["failed"]) for outcome in outcomes.values())
    passes = sum(len(outcome["passed"]) for outcome in outcomes.values())
    print(f"{passes} passed, {failures} failed")
    sys.exit(1 if failures or not passes else 0)


def find_source():
    """The directory of a checkout, or None."""
    given = os.environ.get("VALKEY_SRC")
    if given:
        if not Path(given, "runtest").exists():
            raise SystemExit(f"VALKEY_SRC: no runtest in {given}")
        return Path(given)
    if not (CACHE / "runtest").exists() and not fetch_source():
        return None
    return CACHE


def fetch_source():
    """Whether the public repository could be fetched into the cache."""
    print(f"fetching {REPOSITORY} into {CACHE}", flush=True)
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    commands = (["init", "--quiet", CACHE],
                ["-C", CACHE, "fetch", "--quiet", "--depth", "1", REPOSITORY, COMMIT],
                ["-C", CACHE, "checkout", "--quiet", COMMIT])
    return all(subprocess.run(["git", *command], env=environment).returncode == 0
               for command in commands)


def copy_suite(source, copy):
    shutil.copy(source / "runtest", copy)
    shutil.copytree(source / "tests", copy / "tests", ignore=shutil.ignore_patterns("tmp"))
    (copy / "tests" / "tmp").mkdir(exist_ok=True)
    for name, old, new in CHANGES:
        path = copy / "tests" / name
        text = path.read_text()
        assert old in text, f"the suite has changed: no {old!r} in {name}"
        path.write_text(text.replace(old, new))


def set_debug(host, port, demote):
    """Undoes what a test may have left behind when it failed half-way, and has values demoted or not."""
    settings = ["PAUSE-CRON 0", "SET-ACTIVE-EXPIRE 1", "SET-SKIP-CHECKSUM-VALIDATION 0"]
    if demote:
        settings.append("DEMOTE-AFTER-COMMAND 1")
    with socket.create_connection((host, int(port)), 30) as connection:
        replies = connection.makefile("rb")
        for setting in settings:
            connection.sendall(f"DEBUG {setting}\r\n".encode())
            reply = replies.readline()
            if reply != b"+OK\r\n":
                raise SystemExit(f"DEBUG {setting}: {reply.decode()}")


def flash_reads(host, port):
    """Values that commands have found on flash alone."""
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(b"INFO tiering\r\n")
        lines = iter(connection.makefile("r").readline, "")
        reads = next(line for line in lines if line.startswith("tier_read_flash:"))
    return int(reads.split(":")[1])


def read_skips():
    """Names (or /patterns) in skip.txt; lines with # are the reasons of those below."""
    lines = (HERE / "skip.txt").read_text().splitlines()
    names = [line for line in lines if line and not line.startswith("#")]
    page = (HERE.parent.parent / "docs" / "compatibility.md").read_text()
    unsaid = [name for name in names if f"`{name}`" not in page]
    if unsaid:
        raise SystemExit(f"docs/compatibility.md does not name {unsaid}")
    return names


def run_unit(source, host, port, unit, skipped):
    """Outcomes of the tests of a unit, as names in lists."""
    crashed = []
    for _ in range(RERUNS_MAX):
        output, complete = run_suite(source, host, port, unit, skipped + [c[0] for c in crashed])
        outcome = sort_out(output)
        outcome["failed"] += [name for _, name in crashed]
        if complete:
            return outcome
        culprit = find_culprit(output)
        if culprit is None or culprit in crashed:
            outcome["failed"].append(f"(the unit broke off) {find_reason(output)}")
            return outcome
        crashed.append(culprit)
    outcome["failed"].append(f"(given up after {RERUNS_MAX} runs)")
    return outcome


def run_suite(source, host, port, unit, skipped):
    """What a run prints, without colours, and whether it came to its end."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as skips:
        skips.write("\n".join(skipped))
        skips.flush()
        command = ["./runtest", "--host", host, "--port", port, "--single", unit, "--tags", TAGS,
                   "--skipfile", skips.name]
        # The suite is a tree of processes that share the pipe: a group can be ended as one.
        suite = subprocess.Popen(command, cwd=source, text=True, errors="replace",
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output, _ = suite.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(suite.pid, signal.SIGKILL)
            output, _ = suite.communicate()
            output += f"\nnot done after {SECONDS_MAX} seconds"
    output = COLOUR.sub("", output)
    return output, "The End" in output or "All tests passed" in output


def sort_out(output):
    names = {"ok": "passed", "err": "failed", "skip": "skipped", "ignore": "ignored"}
    outcome = {name: [] for name in names.values()}
    lines = output.splitlines()
    for line, following in zip(lines, lines[1:] + [""]):
        match = OUTCOME.match(line)
        if match and match[1] in names:
            # What was expected stands on the line after a failure.
            reason = f": {following}" if match[1] == "err" else ""
            outcome[names[match[1]]].append(match[2] + reason)
    return outcome


def find_culprit(output):
    """(pattern to skip it, what to call it) of the test whose error ended a run, or None."""
    start = output.find("[exception]")
    match = CULPRIT.search(output, start) if start >= 0 else None
    if match is None:
        return None
    name = next(group for group in match.groups() if group is not None)
    # The trace shows the source: what a variable stands for there is not known.
    pattern = "/^" + re.sub(r"\\\$\w+", ".*", re.escape(name)) + "$"
    return pattern, f"{name}: {find_reason(output)}"


def find_reason(output):
    """The line that says what ended a run."""
    lines = output[max(output.find("[exception]"), 0):].strip().splitlines()
    exception = lines and lines[0].startswith("[exception]")
    return lines[0] if exception else "\n".join(lines[-5:])


def show(unit, outcome):
    counts = ", ".join(f"{len(outcome[name])} {name}"
                       for name in ("passed", "failed", "skipped", "ignored"))
    print(f"{unit}: {counts}")
    for name in outcome["failed"]:
        print(f"  failed: {name}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
