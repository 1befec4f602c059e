"""What happens to long runs, as scenarios: each disturbs a run, lets it go on, and compares its end with that of an
undisturbed run, bit for bit. Small ones are tests (test_long_runs.py, test_resume.py), large ones a tool (tools/hard.py).
A scenario returns the figures that it has to tell; what does not hold is an AssertionError."""
import contextlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import threading
import time

from program import Tally, english

PARTS = ("model.safetensors", "optimizer.safetensors")


def prepare(tally, lines=400):
    """text.txt, tok/ and data/ of many small shards in the folder of `tally`."""
    (tally.folder / "text.txt").write_text(english(lines))
    tally.run("tokenizer", "train", "--input", "text.txt", "--vocab-size", 400, "--out", "tok")
    tally.run("data", "build", "--input", "text.txt", "--tokenizer", "tok", "--shard-tokens", 1024, "--out", "data")


def words(data, steps, **more):
    """A run of `tiny` whose steps take milliseconds, over shuffled epochs, with everything on that writes."""
    flags = {"batch": 2, "model.dropout": 0.1, "order": "shuffle", "tensorboard": "true", "log_every": 1, "eval_every": 20,
             "eval_batches": 4, "checkpoint_every": 10, "sample_tokens": 0, **more}
    return ["train", "--preset", "tiny", "--data", data, "--steps", steps,
            *(word for key, value in flags.items() for word in (f"--{key}", value))]


def latest(run):
    return run / "checkpoints" / (run / "latest").read_text().strip()


def timeless(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in lines]


def assert_same_end(run, whole, parts=PARTS):
    assert latest(run).name == latest(whole).name
    for name in parts:
        assert (latest(run) / name).read_bytes() == (latest(whole) / name).read_bytes(), name
    assert timeless(run) == timeless(whole)
    assert scalars(run) == scalars(whole)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(message):
    """(number, value) of a protocol buffer message: int for varints, bytes for the rest."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 2: None, 5: 4}[key & 7]
        size = varint() if size is None else size
        yield key >> 3, message[at:at + size]
        at += size


def events(run):
    """All events of RUN/tensorboard in the order of the files: {field number: value} each. Every CRC is checked, and
    nothing may follow the last record of a file."""
    for path in sorted((run / "tensorboard").glob("*tfevents*")):
        data = path.read_bytes()
        while data:
            (size,) = struct.unpack_from("<Q", data)
            assert struct.unpack_from("<I", data, 8)[0] == masked(data[:8]), path
            body = data[12:12 + size]
            assert struct.unpack_from("<I", data, 12 + size)[0] == masked(body), path
            yield dict(fields(body))
            data = data[16 + size:]


def scalars(run):
    """[(step, tag, value)] of the event files, without what a clock says; no step of a tag is there twice."""
    found = []
    for event in events(run):
        for number, value in fields(event.get(5, b"")):
            assert number == 1
            entry = dict(fields(value))
            found.append((event.get(2, 0), entry[1].decode(), struct.unpack("<f", entry[2])[0]))
    assert len({entry[:2] for entry in found}) == len(found)
    return [entry for entry in found if entry[1] != "train/tokens_per_second"]


class Lines:
    """Standard error of a process that runs, line by line, with waiting for one."""

    def __init__(self, process):
        self.process, self.lines = process, []
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stderr:
            self.lines.append(line.decode())

    def wait(self, part, timeout=60):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if any(part in line for line in list(self.lines)):
                return
            assert self.process.poll() is None or self.thread.is_alive(), f"ended without {part!r}: {self.lines}"
            time.sleep(0.005)
        raise AssertionError(f"{part!r} did not come: {self.lines}")

    def end(self, code, timeout=120):
        assert self.process.wait(timeout) == code, self.lines
        self.thread.join()
        return self.lines


def wait_for_steps(run, steps):
    """Until metrics.jsonl has a line of this step."""
    log = run / "metrics.jsonl"
    for _ in range(20000):
        if log.exists() and f'"step":{steps},'.encode() in log.read_bytes():
            return
        time.sleep(0.005)
    raise AssertionError(f"{run}: did not come to step {steps}")


# Kill -9.

def check_latest(run):
    """What `latest` names is there in full, whatever the moment of the kill."""
    if not (run / "latest").exists():
        return
    folder = latest(run)
    state = json.loads((folder / "state.json").read_text())
    assert folder.name == f"step_{state['step']:08d}"
    assert (folder / "state.json").stat().st_size == 8192
    for name, size in state["files"].items():
        assert (folder / name).stat().st_size == size
    if (run / "best").exists():
        assert (run / "checkpoints" / (run / "best").read_text().strip() / "state.json").exists()


def kills(tally, data, kills, steps=60, seed=1):
    """kill -9 at random moments of a run that saves at every step; whenever one comes to its end, a new one begins."""
    command = words(data, steps, checkpoint_every=1, sample_every=30, sample_tokens=5)
    begin = time.monotonic()
    tally.run(*command, "--out", "whole")
    duration = time.monotonic() - begin
    whole, run = tally.folder / "whole", tally.folder / "run"
    moments = random.Random(seed)
    killed = inside_a_save = ends = 0

    def resume():
        return ["--resume"] if (run / "config.json").exists() else []

    def check_end():
        assert_same_end(run, whole, (*PARTS, "state.json"))
        assert (run / "best").read_text() == (whole / "best").read_text()
        assert {p.name for p in (run / "checkpoints").iterdir()} == {p.name for p in (whole / "checkpoints").iterdir()}

    while killed < kills:
        started = tally.start(*command, "--out", "run", *resume())
        time.sleep(moments.uniform(0, duration / 2))
        if started.poll() is None:
            started.kill()
            killed += 1
        started.communicate()
        if started.returncode == 0:  # it came to its end: a new run for the moments that are left
            check_end()
            ends += 1
            shutil.rmtree(run)
            continue
        assert started.returncode == -signal.SIGKILL
        check_latest(run)
        inside_a_save += (run / "checkpoints").exists() and any(p.name.startswith(".") for p in (run / "checkpoints").iterdir())
    tally.run(*command, "--out", "run", *resume())
    check_end()
    return {"kills": killed, "inside a save": inside_a_save, "runs that came to their end": ends + 1}


# Disks.

class NoDisk(Exception):
    """A small disk cannot be mounted here (it takes root)."""


@contextlib.contextmanager
def small_disk(folder, kilobytes):
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tally_test", folder], capture_output=True)
    if done.returncode != 0:
        raise NoDisk(done.stderr.decode().strip())
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(path, block=4096):
    """Grows the file until nothing more fits."""
    with open(path, "ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * block):
            pass


SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <time.h>
static long back(void) {
  static long calls;
  const char* seconds = getenv("SHIM_CLOCK_BACK");
  return seconds && __sync_add_and_fetch(&calls, 1) % 20 >= 10 ? atol(seconds) : 0;
}
int clock_gettime(clockid_t clock, struct timespec* t) {
  static int (*next)(clockid_t, struct timespec*);
  if (!next) next = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  int result = next(clock, t);
  if (clock == CLOCK_REALTIME) t->tv_sec -= back();
  return result;
}
time_t time(time_t* out) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  if (out) *out = t.tv_sec;
  return t.tv_sec;
}
int statvfs(const char* path, struct statvfs* s) {
  static int (*next)(const char*, struct statvfs*);
  if (!next) next = (int (*)(const char*, struct statvfs*))dlsym(RTLD_NEXT, "statvfs");
  int result = next(path, s);
  if (getenv("SHIM_ROOMY")) s->f_bavail = s->f_blocks = 1l << 40;
  return result;
}
"""


def with_shim(tally, **variables):
    """The program with another clock or statvfs: SHIM_CLOCK_BACK=s sets the wall clock back by s seconds and forward
    again every ten times it is read; SHIM_ROOMY makes every disk claim to have room."""
    library = tally.folder / "shim.so"
    if not library.exists():
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, "-x", "c", "-", "-ldl"], input=SHIM.encode(),
                       check=True)
    return Tally(tally.folder, {**tally.environment, "LD_PRELOAD": str(library), **variables})


def full_disk(tally, data, steps=300, at=60, roomy=False):
    """The disk of the run is filled while it trains and freed after a checkpoint has failed. roomy: the disk claims to
    have room, so that write(2) finds out in the middle of a file."""
    command = words(data, steps)
    tally.run(*command, "--out", "whole")
    whole, program = tally.folder / "whole", with_shim(tally, SHIM_ROOMY="1") if roomy else tally
    size = sum(p.stat().st_size for p in latest(whole).iterdir())
    with small_disk(tally.folder / "disk", 6 * size // 1024 + 1024) as disk:
        run = disk / "run"
        lines = Lines(program.start(*command, "--out", run))
        wait_for_steps(run, at)
        fill(disk / "filler")
        lines.wait("not saved (")
        before = latest(run)
        content = {p.name: p.read_bytes() for p in before.iterdir()}
        time.sleep(0.2)  # further attempts
        assert latest(run) == before and {p.name: p.read_bytes() for p in before.iterdir()} == content
        (disk / "filler").unlink()
        end = lines.end(0)
        assert_same_end(run, whole)
        assert all(p.name.startswith("step_") for p in (run / "checkpoints").iterdir())
        failed = [line for line in end if "not saved (" in line]
        # The disk may fill in the middle of a save; from the next one on the room is found too small beforehand.
        assert any(("no space left" if roomy else "a checkpoint needs") in line for line in failed), failed
        return {"checkpoints that failed": len(failed), "message": failed[0].strip()}


def full_disk_to_the_end(tally, data, steps=200, at=60, wait=1):
    """The disk stays full: exit 1 with a line that names the newest checkpoint, which is as it was."""
    with small_disk(tally.folder / "disk", 16384) as disk:
        run = disk / "run"
        lines = Lines(tally.start(*words(data, steps), "--out", run, "--save_wait", wait))
        wait_for_steps(run, at)
        fill(disk / "filler")
        line = lines.end(1)[-1]
        assert all(p.name.startswith("step_") for p in (run / "checkpoints").iterdir())
        assert line.startswith(f"tally: error: step {steps} could not be saved within"), line
        assert f"the newest checkpoint is {latest(run)}" in line
        (disk / "filler").unlink()
        tally.run("inspect", "checkpoint", run)
        tally.run("train", "--out", run, "--resume")
        assert latest(run).name == f"step_{steps:08d}"
    return {"message": line.strip()}


# Data.

def damaged_shard(tally, data, damage, steps=150, at=30):
    """damage(path) of a training shard while the run reads it: one line that names the file, the last good step saved;
    with the file back, the run goes on to the same bits."""
    mine = tally.folder / "mine"
    shutil.copytree(data, mine)
    command = words("mine", steps)
    tally.run(*command, "--out", "whole")
    lines = Lines(tally.start(*command, "--out", "run"))
    run = tally.folder / "run"
    wait_for_steps(run, at)
    path = mine / "train_00001.tok"
    content = path.read_bytes()
    damage(path)
    line = lines.end(1)[-1]
    assert line.startswith("tally: error: mine/train_00001.tok: "), line
    step = int(latest(run).name[5:])
    assert at <= step < steps and f"step {step} is saved" in line and "--resume" in line
    path.write_bytes(content)
    tally.run("train", "--out", "run", "--resume")
    assert_same_end(run, tally.folder / "whole")
    return {"step saved": step, "message": line.strip()}


# Clocks.

def clock_back(tally, data, steps=100):
    """The wall clock jumps back an hour and forward again all the time; limits and minutes are of the steady clock."""
    command = words(data, steps, time_limit="1h", checkpoint_minutes=0.002)
    tally.run(*command, "--out", "whole")
    jumping = with_shim(tally, SHIM_CLOCK_BACK="3600")
    begin = time.monotonic()
    jumping.run(*command, "--out", "run")
    assert time.monotonic() - begin < 60
    assert_same_end(tally.folder / "run", tally.folder / "whole")
    times = [struct.unpack("<d", event[1])[0] for event in events(tally.folder / "run")]
    jumps = sum(b < a - 3000 for a, b in zip(times, times[1:]))
    assert jumps > 0, "the shim did not move the clock"
    jumping.run(*words(data, 10 ** 9, time_limit="2s"), "--out", "limited")
    return {"jumps seen in wall times": jumps}


# Memory.

def steady_memory(tally, data, minutes, preset="tiny"):
    """Resident memory after a sixth of the time and at the end of a run of this many minutes, and its steps."""
    run = tally.folder / "run"
    command = ["train", "--preset", preset, "--data", data, "--steps", 10 ** 9, "--order", "shuffle", "--tensorboard",
               "--eval_every", 1000, "--checkpoint_every", 1000, "--sample_every", 5000, "--time_limit", f"{minutes}m"]
    started = tally.start(*command, "--out", run)
    lines = Lines(started)
    threading.Thread(target=lambda: [None for _ in started.stdout], daemon=True).start()
    begin, resident = time.monotonic(), []
    while started.poll() is None:
        status = open(f"/proc/{started.pid}/status").read()
        if "VmRSS:" in status:
            resident.append((time.monotonic() - begin, int(status.split("VmRSS:")[1].split()[0])))
        time.sleep(min(1, minutes))
    lines.end(0)
    early = next(kib for seconds, kib in resident if seconds >= 10 * minutes)
    return {"minutes": round((time.monotonic() - begin) / 60, 2), "steps": int(latest(run).name[5:]),
            "RSS early": early, "RSS at the end": resident[-1][1]}
