#!/usr/bin/env bash
# What takes too long for ./run test; run it by hand after ./run test has built everything:
#   tools/long.sh            all of it (an hour on two cores)
#   tools/long.sh ctest      the tests of label long
#   tools/long.sh hard       the hard cases of long runs, tools/hard.py and its arguments: kills, full disks, 30 minutes
#   tools/long.sh einops     einops and einsum on 100,000 random patterns each against a loop over indices
#   tools/long.sh words      the demo in full: at least half of the sampled words are words of the training text
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/release
tally=$PWD/$build/bin/tally
[[ -x $tally ]] || { echo "long.sh: $tally is missing; run ./run test first" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

long_ctest() { ctest --test-dir $build -L long --output-on-failure --no-tests=error; }

long_hard() { python3 tools/hard.py --tally "$tally" "$@"; }

long_einops() { TALLY_PROPERTY_CASES=100000 $build/tally/ops/tally_ops_tests --gtest_filter='Ein*.Random*'; }

long_words() {
  ./run demo
  local dir
  dir=$(find out/demo -mindepth 1 -maxdepth 1 -type d | sort | tail -n 1)
  for seed in 1 2 3 4 5; do
    "$tally" generate --model "$dir/run" --max-tokens 200 --temperature 0.8 --seed $seed --prompt And
  done >"$work/samples"
  python3 - "$work/samples" "$dir/text.txt" <<'PYTHON'
import re, sys
words, known = (re.findall(r"[A-Za-z]+", open(name).read()) for name in sys.argv[1:])
known = set(known)
hits = sum(word in known for word in words)
print(f"words: {hits} of {len(words)} sampled words are words of the text ({100 * hits / len(words):.0f} %)")
sys.exit(len(words) < 200 or 2 * hits < len(words))
PYTHON
}

case ${1:-all} in
  ctest) long_ctest ;;
  hard) long_hard "${@:2}" ;;
  einops) long_einops ;;
  words) long_words ;;
  all)
    long_ctest
    long_hard
    long_einops
    long_words
    ;;
  *) sed -n '2,7s/^# //p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
