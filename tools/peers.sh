#!/usr/bin/env bash
# tools/peers.sh [FOLDER]   a virtual environment with the peers of bench/: PyTorch, NumPy, safetensors; tiktoken, Hugging
#                           Face's tokenizers, rustbpe, regex, quicktok (from its source, in FOLDER/src/quicktok/build)
# FOLDER defaults to $TALLY_PEERS, else ~/.cache/tally/peers, and must lie outside this tree. What is there stays as it
# is, so a second call does nothing. Needs python3 with venv, and git, cmake and a C++20 compiler for quicktok, without
# which the rest goes on; bench/ alone uses it, no test does.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$(realpath -m "${1:-${TALLY_PEERS:-$HOME/.cache/tally/peers}}")
packages=(torch numpy safetensors tiktoken tokenizers rustbpe regex xxhash)

die() { printf 'peers: error: %s\n' "$*" >&2; exit 2; }
[[ $folder/ != "$root"/* ]] || die "$folder lies in the source tree; name a folder outside it"

complete() {
  "$folder/bin/python" -c 'import torch, numpy, safetensors, tiktoken, tokenizers, rustbpe, regex, xxhash' 2>/dev/null
}

quicktok() {
  local source=$folder/src/quicktok
  [[ -f $source/build/libquicktok.a ]] && return
  [[ -d $source ]] || git clone --quiet --depth 1 https://github.com/dmatth1/quicktok "$source" || return
  cmake -S "$source" -B "$source/build" -DCMAKE_BUILD_TYPE=Release -DQUICKTOK_NATIVE=ON >/dev/null &&
    cmake --build "$source/build" --parallel >/dev/null
}

if ! complete; then
  python3 -m venv "$folder" || die "python3 -m venv $folder failed; on Debian and Ubuntu install python3-venv"
  "$folder/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" ||
    die "pip could not install ${packages[*]} into $folder"
  complete || die "$folder has the packages and cannot import them"
fi
quicktok || printf 'peers: quicktok could not be built; bench/tokenizers.py leaves it out\n' >&2
"$folder/bin/python" - <<'PYTHON'
from importlib.metadata import version
print(", ".join(f"{name} {version(name)}" for name in "torch numpy safetensors tiktoken tokenizers rustbpe regex".split()))
PYTHON
printf '%s\n' "$folder"
