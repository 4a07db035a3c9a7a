"""What the acceptance scripts share: servers and loads pinned to cores, and the kernel's counters.

A measurement is worth something only if nothing else runs: the server has core 0, the load core 1.
CPU time is the kernel's account of the server process (/proc/PID/stat), resident memory is sampled
from /proc/PID/status while the load runs, and drive traffic is the block device's own counters.
Comparisons alternate between the servers in paired rounds, and medians are reported.

Only the standard library is used. Each script builds a `Bench`, measures, calls `check` for every
line of the acceptance, and ends with `finish`.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from pauses import Pauses

SERVER_CORE = "0"
LOAD_CORE = "1"
SAMPLES_A_SECOND = 20
START_SECONDS_MAX = 300
STOLEN_SHARE_MAX = 0.01
STOP_SECONDS_MAX = 60
SECTOR_BYTES = 512
MIB = 1 << 20
GIB = 1 << 30
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
REPOSITORY = Path(__file__).resolve().parent.parent


# ---------------------------------------------------------------- protocol

class ReplyError(Exception):
    """The server answered with an error."""


class Client:
    """A RESP2 connection for commands that are not part of a load."""

    def __init__(self, port, timeout=600):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.file = self.socket.makefile("rb")

    def call(self, *words):
        """Sends one command and returns its reply; raises ReplyError for an error reply."""
        parts = [str(word).encode() for word in words]
        head = b"*%d\r\n" % len(parts)
        self.socket.sendall(head + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
        return self.reply()

    def reply(self):
        """The next reply; raises ReplyError for an error reply."""
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, text = line[:1], line[1:-2]
        if kind == b"-":
            raise ReplyError(text.decode())
        if kind == b"+":
            return text.decode()
        if kind == b":":
            return int(text)
        if kind == b"$":
            size = int(text)
            return None if size < 0 else self.file.read(size + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(text))]
        raise ConnectionError(f"no RESP2 reply: {line!r}")

    def info(self, section):
        """One section of INFO as a dict; numbers are converted."""
        fields = {}
        for line in (self.call("INFO", section) or b"").decode().splitlines():
            name, colon, value = line.partition(":")
            if colon:
                fields[name] = number(value)
        return fields

    def close(self):
        self.file.close()
        self.socket.close()


def number(text):
    """The number that a text is, with or without a per cent sign, else the text."""
    for convert in (int, float):
        try:
            return convert(text.rstrip("%"))
        except ValueError:
            pass
    return text


# ---------------------------------------------------------------- kernel counters

def cpu_seconds(pid):
    """User and system time of all threads of a process, also of those that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def memory_bytes(pid):
    """(resident now, resident at most so far) of a process."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "VmHWM"):
            found[name] = int(value.split()[0]) * 1024
    return found["VmRSS"], found["VmHWM"]


def process_io_bytes(pid):
    """(read, written) bytes that a process has caused on block devices."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["read_bytes"]), int(fields["write_bytes"])


class Drive:
    """The block device that holds a directory, and its counters."""

    def __init__(self, path):
        device = os.stat(path).st_dev
        self.directory = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
        self.name = self.directory.name

    def counters(self):
        fields = [int(field) for field in (self.directory / "stat").read_text().split()]
        return {
            "reads": fields[0],
            "read_bytes": fields[2] * SECTOR_BYTES,
            "writes": fields[4],
            "write_bytes": fields[6] * SECTOR_BYTES,
        }


class Measurement:
    """What a server and the drive did between `start` and `stop`, memory sampled in between."""

    def __init__(self, server, drive):
        self.server, self.drive = server, drive
        self.rss_samples = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self):
        pid = self.server.pid
        self._device = self.drive.counters()
        self._io = process_io_bytes(pid)
        self._cpu = cpu_seconds(pid)
        self._time = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()
        if not self.server.is_running():
            raise RuntimeError(f"{self.server.name} died; its log is {self.server.log}")
        pid = self.server.pid
        self.seconds = time.monotonic() - self._time
        self.cpu_seconds = cpu_seconds(pid) - self._cpu
        after = self.drive.counters()
        self.device = {name: after[name] - self._device[name] for name in after}
        io = process_io_bytes(pid)
        self.process_read_bytes = io[0] - self._io[0]
        self.process_write_bytes = io[1] - self._io[1]
        self.rss_bytes, self.hwm_bytes = memory_bytes(pid)
        self.rss_max_bytes = max(self.rss_samples + [self.rss_bytes])

    def _sample(self):
        while not self._ended.wait(1 / SAMPLES_A_SECOND):
            with contextlib.suppress(FileNotFoundError, KeyError):
                self.rss_samples.append(memory_bytes(self.server.pid)[0])

    def as_dict(self):
        return {
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "rss_max_bytes": self.rss_max_bytes,
            "rss_bytes": self.rss_bytes,
            "device": self.device,
            "process_read_bytes": self.process_read_bytes,
            "process_write_bytes": self.process_write_bytes,
        }


# ---------------------------------------------------------------- servers

class Server:
    """A server process pinned to cores; stopped by its pid."""

    def __init__(self, name, command, port, cores, directory, drive):
        self.name, self.port, self.drive = name, port, drive
        self.log = Path(directory) / f"{name}-{port}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["taskset", "-c", cores, *map(str, command)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory)
        self.pid = self.process.pid
        self._wait()

    def _wait(self):
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if not self.is_running():
                break
            with contextlib.suppress(OSError, ReplyError):
                client = self.client()
                client.call("PING")
                client.close()
                return
            time.sleep(0.05)
        self.stop()
        raise SystemExit(f"{self.name} does not start:\n{self.log.read_text()[-2000:]}")

    def is_running(self):
        return self.process.poll() is None

    def client(self):
        return Client(self.port)

    def has_tier(self):
        """Whether it is a server with a flash tier: redis-server stands in for one in dry runs."""
        client = self.client()
        try:
            client.call("TIER", "HELP")
            return True
        except ReplyError:
            return False
        finally:
            client.close()

    def measure(self):
        return Measurement(self, self.drive)

    @contextlib.contextmanager
    def paused(self):
        """Keeps it off the core while another server is measured."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def stop(self):
        if self.is_running():
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


# ---------------------------------------------------------------- loads

# Every load: one thread, connections that draw their own keys, and a short result.
LOAD = ["bench", "run", "-t", "1", "--distinct-client-seed", "--hide-histogram",
        "--print-percentiles", "50,90,99,99.9"]


def summarize(report):
    """What the scripts use of the JSON that a load leaves, which is laid out as memtier's."""
    def row(name):
        stats = report["ALL STATS"].get(name)
        # A load of commands of its own has other rows.
        if stats is None:
            return None
        percentiles = stats["Percentile Latencies"]
        return {
            "count": stats["Count"],
            "per_second": stats["Ops/sec"],
            "latency_ms": {
                "mean": stats["Average Latency"],
                "p50": percentiles["p50.00"],
                "p90": percentiles["p90.00"],
                "p99": percentiles["p99.00"],
                "p99.9": percentiles["p99.90"],
                "max": stats["Max Latency"],
            },
        }

    kelvin = report["kelvin"]
    run = kelvin["runs"][0]
    return {
        "set": row("Sets"), "get": row("Gets"), "all": row("Totals"),
        "misses": kelvin["missing"],
        "replies_by_second": run["replies_by_second"],
        "latency_ms_max_by_second": run["latency_ms_max_by_second"],
        **{name: kelvin[name] for name in (
            "seconds", "errors", "wrong", "connections_lost", "unsent", "error_texts",
            "stall_ms_max", "value_bytes_written", "value_bytes_read",
            "cpu_seconds_user", "cpu_seconds_system")},
    }


def machine_pauses(result):
    """The machine's own longest pauses while a load ran, for its line."""
    (server, server_lost), (load, load_lost) = result["machine_pause_ms_max"]
    return (f"(the machine paused for {server} ms on the server's core, {load} ms on the load's; "
            f"of 200 ms it took {server_lost} and {load_lost})")


# ---------------------------------------------------------------- bench

class Bench:
    """One acceptance script: its options, its servers, its results."""

    def __init__(self, name, description, extra_options=None):
        self.name = name
        self.options = parse_options(description, extra_options)
        self.quick = self.options.quick
        self.load_binary = find_load(self.options.load)
        self.flash = Path(self.options.flash_path)
        self.flash.mkdir(parents=True, exist_ok=True)
        self.drive = Drive(self.flash)
        self.directory = Path(tempfile.mkdtemp(prefix=f"kelvin-{name}-"))
        self.servers = []
        self.next_port = self.options.port
        self.data = {}
        self.checks = []
        print(f"== {name}: {description}")
        print(f"   drive {self.drive.name}, {datetime.datetime.now():%Y-%m-%d %H:%M}"
              f"{', quick' if self.quick else ''}")
        self.data["noise"] = noise(self.drive)
        if self.data["noise"]["busy_cores"] > 0.1 or self.data["noise"]["drive_ops"] > 100:
            print(f"   WARNING: the machine is not idle, figures mean little: {self.data['noise']}")
        self.ticks = cpu_ticks()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.stop()
        shutil.rmtree(self.flash / self.name, ignore_errors=True)
        (self.flash / "fio.dat").unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    def maxmemory_mib(self):
        """Memory of a server that tiers: a smoke run has less of it, to have cold values too."""
        return self.scaled(1024, 96)

    def scaled(self, full, quick):
        """A size of the run: the acceptance's own, or that of a smoke run."""
        return quick if self.quick else full

    # Servers.

    def kelvin(self, maxmemory_mib, flash_size="16gb", workers=1, cores=SERVER_CORE, more=(), binary=None):
        """Starts the server under test, or another build of it, without flash if its size is None. With a
        redis-server as binary, it is a dry run."""
        port = self._port()
        binary = binary or self.options.kelvin
        if Path(binary).name.startswith("redis-server"):
            return self._start("redis-as-kelvin", redis_command(binary, port), port, cores)
        command = [
            binary, "server", "--port", port, "--bind", "127.0.0.1", "--protected-mode", "no",
            "--workers", workers, "--maxmemory", f"{maxmemory_mib}mb", *more]
        if flash_size is not None:
            flash = self.flash / self.name / str(port)
            flash.mkdir(parents=True, exist_ok=True)
            command += ["--flash-path", flash, "--flash-size", flash_size]
        return self._start("kelvin", command, port, cores)

    def redis(self, cores=SERVER_CORE, more=()):
        port = self._port()
        command = [*redis_command("redis-server", port), *more]
        return self._start("redis", command, port, cores)

    def stop(self, server):
        server.stop()
        self.servers.remove(server)
        shutil.rmtree(self.flash / self.name / str(server.port), ignore_errors=True)

    def _port(self):
        """The next port that nobody listens on: a stranger there would be measured instead."""
        while True:
            self.next_port += 1
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.next_port)) != 0:
                    return self.next_port

    def _start(self, name, command, port, cores):
        server = Server(name, command, port, cores, self.directory, self.drive)
        self.servers.append(server)
        return server

    # Loads.

    def start_load(self, server, arguments, cores=LOAD_CORE, nice=0, before=()):
        """Starts a load in the background, after the words `before`; `end_load` waits for it. The
        arguments are a list where one of them has spaces."""
        words = arguments.split() if isinstance(arguments, str) else arguments
        handle, path = tempfile.mkstemp(suffix=".json", dir=self.directory)
        os.close(handle)
        command = ["nice", "-n", str(nice), "taskset", "-c", cores, *before, self.load_binary, *LOAD,
                   "-p", str(server.port), "--json-out-file", path, *words]
        pauses = Pauses([SERVER_CORE, LOAD_CORE])
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True)
        return process, path, arguments, pauses

    def end_load(self, load, may_fail=False):
        """The result of a load, with the longest pauses of the machine on the server's core and on the
        load's meanwhile; anything wrong ends the script unless `may_fail`."""
        process, path, arguments, pauses = load
        output, _ = process.communicate()
        machine_pauses = pauses.close()
        text = Path(path).read_text()
        if process.returncode != 0 and not (may_fail and text):
            raise SystemExit(f"the load went wrong: {arguments}\n{output}")
        return {**summarize(json.loads(text)), "machine_pause_ms_max": machine_pauses}

    def load(self, server, arguments, cores=LOAD_CORE, may_fail=False):
        """Runs a load to its end; returns (what the load saw, what the server and drive did)."""
        with server.measure() as measurement:
            result = self.end_load(self.start_load(server, arguments, cores), may_fail)
        return result, measurement

    def fio_reads(self, block_bytes, depth, seconds, file_bytes):
        """Random O_DIRECT reads by fio from core 0: reads a second and CPU seconds a read."""
        path = self.flash / "fio.dat"
        if not path.exists() or path.stat().st_size < file_bytes:
            run_fio(path, file_bytes, ["--rw=write", "--bs=1M", "--iodepth=16", "--end_fsync=1"])
        job = run_fio(path, file_bytes, [
            "--rw=randread", f"--bs={block_bytes}", f"--iodepth={depth}", "--time_based",
            f"--runtime={seconds}", "--norandommap", "--randrepeat=0"])
        reads = job["read"]["total_ios"]
        busy = job["job_runtime"] / 1000 * (job["usr_cpu"] + job["sys_cpu"]) / 100
        return {
            "reads_per_second": job["read"]["iops"],
            "cpu_us_per_read": busy / reads * 1e6,
            "latency_us_mean": job["read"]["clat_ns"]["mean"] / 1000,
        }

    # Results.

    def record(self, name, value):
        """Keeps raw figures for the JSON result."""
        self.data.setdefault(name, []).append(value)

    def check(self, what, value, comparison, bar, unit=""):
        """Compares a figure with the acceptance's bar; `value` None means not measurable here."""
        if value is None:
            passed = None
        elif comparison == "<=":
            passed = value <= bar
        else:
            assert comparison == ">="
            passed = value >= bar
        self.checks.append({"what": what, "value": value, "comparison": comparison, "bar": bar,
                            "unit": unit, "passed": passed})

    def finish(self):
        """Prints the table, writes the JSON result, and exits with 1 if a bar was missed."""
        total, stolen = (now - before for now, before in zip(cpu_ticks(), self.ticks))
        self.data["stolen_share"] = stolen / max(total, 1)
        if self.data["stolen_share"] > STOLEN_SHARE_MAX:
            print(f"   WARNING: the hypervisor gave {self.data['stolen_share']:.1%} of the CPU time to "
                  "others, stalls and rates may be theirs")
        print()
        for line in self.checks:
            verdict = {True: "pass", False: "MISS", None: "n/a "}[line["passed"]]
            value = "-" if line["value"] is None else f"{line['value']:.4g}"
            print(f"  {verdict}  {line['what']:<58} {value:>9} "
                  f"{line['comparison']} {line['bar']:<6g} {line['unit']}")
        result = {
            "name": self.name,
            "time": datetime.datetime.now().isoformat(timespec="seconds"),
            "quick": self.quick,
            "machine": machine(),
            "drive": self.drive.name,
            "server": self.options.kelvin,
            "checks": self.checks,
            "data": self.data,
        }
        out = Path(self.options.out)
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{self.name}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(f"  figures in {out / self.name}.json")
        # A smoke run shows that the script works; its figures mean nothing.
        missed = any(line["passed"] is False for line in self.checks)
        sys.exit(1 if missed and not self.quick else 0)


def parse_options(description, extra_options):
    parser = argparse.ArgumentParser(description=description)
    add_options(parser)
    if extra_options:
        extra_options(parser)
    return parser.parse_args()


def add_options(parser):
    """The options that every script has."""
    cache = Path.home() / ".cache" / "kelvin"
    parser.add_argument("--kelvin", default=str(REPOSITORY / "target/release/kelvin"),
                        help="the server under test; a redis-server makes it a dry run")
    parser.add_argument("--load", help="the kelvin that loads; by default the one that was built here")
    parser.add_argument("--flash-path", default=str(cache / "bench-flash"),
                        help="directory on the drive to measure")
    parser.add_argument("--out", default=str(cache / "bench-runs" / "latest"),
                        help="directory for the JSON results")
    parser.add_argument("--port", type=int, default=7800, help="ports from here on are used")
    parser.add_argument("--rounds", type=int, help="paired rounds of each comparison")
    parser.add_argument("--quick", action="store_true", help="a smoke run of a few seconds")


def find_load(given):
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    candidates = [given] if given else [target / "release/kelvin",
                                        REPOSITORY / "target/release/kelvin"]
    for candidate in candidates:
        if Path(candidate).is_file():
            return str(candidate)
    raise SystemExit("no kelvin to load with: cargo build --release -p kelvin, or say --load PATH")


def redis_command(binary, port):
    return [binary, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
            "--protected-mode", "no"]


def run_fio(path, file_bytes, arguments):
    command = ["taskset", "-c", SERVER_CORE, "fio", "--name=job", f"--filename={path}",
               f"--size={file_bytes}", "--direct=1", "--ioengine=io_uring",
               "--output-format=json", *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output[output.index("{"):])["jobs"][0]


def machine():
    model = next((line.partition(":")[2].strip()
                  for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), "unknown")
    memory = Path("/proc/meminfo").read_text().split()[1]
    return {"cpu": model, "cores": os.cpu_count(), "memory_kib": int(memory),
            "kernel": platform.release()}


def median(values):
    return statistics.median(values)


def cpu_fields():
    """CPU time of all cores since the start, in ticks, by kind (proc(5)): 3 is idle, 4 waits for the
    drive, 7 was taken by the hypervisor, 8 and 9 are in the first two as well."""
    line = Path("/proc/stat").read_text().split("\n")[0]
    return [int(field) for field in line.split()[1:9]]


def cpu_ticks():
    """All of it, and what the hypervisor took."""
    fields = cpu_fields()
    return sum(fields), fields[7]


def noise(drive):
    """What the machine does by itself in a second: cores that are busy, reads and writes."""
    def now():
        fields = cpu_fields()
        counters = drive.counters()
        return sum(fields) - fields[3] - fields[4], counters["reads"] + counters["writes"]

    before = now()
    time.sleep(1)
    after = now()
    return {"busy_cores": (after[0] - before[0]) / CLOCK_TICKS, "drive_ops": after[1] - before[1]}


def key_bytes_mean(count, prefix="memtier-"):
    """Average length of the keys `prefix`1 to `prefix``count`."""
    digits, low = 0, 1
    while low <= count:
        high = min(low * 10 - 1, count)
        digits += (high - low + 1) * len(str(low))
        low *= 10
    return len(prefix) + digits / count


def settle(server, seconds_max=90):
    """Waits until resident memory has stopped shrinking and the drive is at rest."""
    quiet, before = 0, None
    deadline = time.monotonic() + seconds_max
    while quiet < 8 and time.monotonic() < deadline:
        time.sleep(0.5)
        now = (memory_bytes(server.pid)[0] // MIB, process_io_bytes(server.pid)[1] // MIB)
        quiet = quiet + 1 if now == before else 0
        before = now


# ---------------------------------------------------------------- tier

def share_in_ram(server, keys, samples=4000):
    """Share of the values of keys 1 to `keys` that are in RAM, by TIER LOCATE of some of them.

    It does not trust the server's own counters; 4,000 samples are good to about half a per cent.
    """
    client = server.client()
    samples = min(samples, keys)
    in_ram = 0
    for index in range(samples):
        key = f"memtier-{1 + index * keys // samples}"
        place = client.call("TIER", "LOCATE", key)
        state = dict(zip(place[::2], place[1::2]))[b"state"]
        if state == b"missing":
            raise SystemExit(f"{key} is missing")
        in_ram += state != b"cold"
    client.close()
    return in_ram / samples


def demote_all(server):
    """Sends every value to flash and waits until memory and drive are at rest."""
    client = server.client()
    client.call("TIER", "DEMOTE", "ALL")
    client.close()
    settle(server)


def tiering(server):
    """INFO tiering, for the record."""
    client = server.client()
    fields = client.info("tiering")
    client.close()
    return fields
