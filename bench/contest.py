"""What the contests of bench/vs_torch.py share: processes, medians."""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def call(command, environment):
    """Runs a process; its standard output and its largest resident set in bytes."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([str(c) for c in command], stdout=out, stderr=err, env={**os.environ, **environment})
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\nexit {process.returncode}: {err.read().decode()[-3000:]}")
        return out.read().decode(), usage.ru_maxrss * 1024


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


def medians(rounds):
    """{key: [value, ...]} -> {key: median}."""
    return {key: statistics.median(values) for key, values in rounds.items()}


def say(text):
    print(text, file=sys.stderr, flush=True)
