#!/usr/bin/env bash
# tools/peers.sh [FOLDER]   a virtual environment with the peers of bench/: PyTorch, NumPy, safetensors
# FOLDER defaults to $TALLY_PEERS, else ~/.cache/tally/peers, and must lie outside this tree. Packages that are there
# stay as they are, so a second call does nothing. Needs python3 with venv; bench/ alone uses it, no test does.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$(realpath -m "${1:-${TALLY_PEERS:-$HOME/.cache/tally/peers}}")
packages=(torch numpy safetensors)

die() { printf 'peers: error: %s\n' "$*" >&2; exit 2; }
[[ $folder/ != "$root"/* ]] || die "$folder lies in the source tree; name a folder outside it"

complete() { "$folder/bin/python" -c 'import torch, numpy, safetensors' 2>/dev/null; }

if ! complete; then
  python3 -m venv "$folder" || die "python3 -m venv $folder failed; on Debian and Ubuntu install python3-venv"
  "$folder/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" ||
    die "pip could not install ${packages[*]} into $folder"
  complete || die "$folder has the packages and cannot import them"
fi
"$folder/bin/python" - <<'PYTHON'
import torch, numpy, safetensors
print(f"torch {torch.__version__}, numpy {numpy.__version__}, safetensors {safetensors.__version__}")
PYTHON
printf '%s\n' "$folder"
