"""The program as a user calls it, without pytest: for the tests here and for tools/hard.py. TALLY names the executable
(default build/release/bin/tally)."""
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("TALLY", str(ROOT / "build/release/bin/tally"))
END = "<|endoftext|>"


class Tally:
    """Calls the program in a folder."""

    def __init__(self, folder, environment):
        self.folder = folder
        self.environment = environment

    def run(self, *words, code=0, input=None, timeout=120, **more):
        """Standard output as text; fails the test when the exit code differs."""
        return self.bytes(*words, code=code, input=input, timeout=timeout, **more).decode()

    def bytes(self, *words, code=0, input=None, timeout=120, **more):
        done = subprocess.run([PROGRAM, *map(str, words)], cwd=self.folder, env=self.environment, input=input,
                              capture_output=True, timeout=timeout, **more)
        assert done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stdout!r}\n{done.stderr!r}"
        return done.stdout

    def error(self, *words, code=2, input=None, after_progress=False, **more):
        """The one line of an error, without its 'tally: error: '. Lines of progress may stand before it if asked for."""
        done = subprocess.run([PROGRAM, *map(str, words)], cwd=self.folder, env=self.environment, input=input,
                              capture_output=True, timeout=120, **more)
        text = done.stderr.decode()
        assert done.returncode == code, f"{words}: exit code {done.returncode}\n{text}"
        lines = text.splitlines()[-1:] if after_progress else text.splitlines()
        assert len(lines) == 1 and lines[0].startswith("tally: error: "), f"not one line of error: {text!r}"
        return lines[0].removeprefix("tally: error: ")

    def detailed_error(self, *words, code=2, **more):
        """The line of an error without its 'tally: error: ', and the lines below it, which help on."""
        done = subprocess.run([PROGRAM, *map(str, words)], cwd=self.folder, env=self.environment, capture_output=True,
                              timeout=120, **more)
        lines = done.stderr.decode().splitlines()
        assert done.returncode == code, f"{words}: exit code {done.returncode}\n{lines}"
        at = next(i for i, line in enumerate(lines) if line.startswith("tally: error: "))
        return lines[at].removeprefix("tally: error: "), lines[at + 1:]

    def start(self, *words, **more):
        return subprocess.Popen([PROGRAM, *map(str, words)], cwd=self.folder, env=self.environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def english(lines=400):
    """Text with structure, the same in every run."""
    subjects = ["the king", "a shepherd", "my brother", "the old woman", "every child", "the wind"]
    verbs = ["saw", "followed", "loved", "feared", "sang of", "went down to"]
    objects = ["the city", "a river", "the hills of the north", "his people", "the sea", "bread and wine"]
    return "".join(f"And {subjects[i * 7 % 6]} {verbs[(i * 5 + i // 6) % 6]} {objects[(i * 3 + i // 36) % 6]}, "
                   f"for it was the {i}th day.\n" for i in range(lines))


def tree(folder):
    """{path: bytes} of all files, to see that nothing was changed."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in pathlib.Path(folder).rglob("*") if p.is_file()}
