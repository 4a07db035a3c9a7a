"""Runs every acceptance script of benches/ one after the other and sums them up.

Options are handed on to each; `--only NAME` (repeatable) picks some. The exit code is the number of
scripts that failed or missed a bar.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import harness

SCRIPTS = ["fill_and_read", "small_values", "cold_key_ram", "ram_speed", "flash_speed", "cold_neighbour",
           "endurance", "eviction", "request_memory", "locality", "collections_ram", "collections_speed",
           "collections_cold", "durability", "snapshot", "restart"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    harness.add_options(parser)
    parser.add_argument("--only", action="append", choices=SCRIPTS)
    options = parser.parse_args()
    handed_on = []
    for name, value in vars(options).items():
        if name == "only" or value is None or value is False:
            continue
        flag = "--" + name.replace("_", "-")
        handed_on += [flag] if value is True else [flag, str(value)]
    failed = []
    for name in options.only or SCRIPTS:
        script = Path(__file__).with_name(f"{name}.py")
        if subprocess.run([sys.executable, script, *handed_on]).returncode != 0:
            failed.append(name)
        print(flush=True)
    summarise(Path(options.out), options.only or SCRIPTS, failed)
    sys.exit(len(failed))


def summarise(out, names, failed):
    print("== summary")
    for name in names:
        path = out / f"{name}.json"
        checks = json.loads(path.read_text())["checks"] if path.exists() else []
        counts = {verdict: sum(1 for line in checks if line["passed"] is verdict)
                  for verdict in (True, False, None)}
        state = "failed or missed" if name in failed else "ok"
        print(f"   {name:<16} {state:<17} {counts[True]} passed, {counts[False]} missed, "
              f"{counts[None]} not measurable")


if __name__ == "__main__":
    main()
