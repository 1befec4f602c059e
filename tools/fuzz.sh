#!/usr/bin/env bash
# Fuzzes the parsers: libFuzzer with the address and undefined-behaviour sanitizers (preset fuzz, build/fuzz).
#   tools/fuzz.sh [--minutes N | --seconds N] [--keep] [TARGET...]
# Each target (all, unless named) runs for 15 minutes on one core, one after the other. --keep adds the inputs that
# reach new code, as few as will do, to tests/fuzz/corpus. Exits 1 when anything was found, behind the name of the
# input's file; `build/fuzz/tests/fuzz/fuzz_TARGET FILE` runs it again. What was learnt stays in build/fuzz/corpus.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/fuzz
targets=() seconds=900 keep=''
largest=4096           # bytes of an input
slowest=60             # seconds by the clock: far above what an input takes, since the machine may be busy
memory=2048 block=256  # MB: of the process, of one allocation

die() { printf 'fuzz.sh: error: %s\n' "$*" >&2; exit 2; }
whole() { [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "$1 needs a whole number from 1"; }
while (($#)); do
  case $1 in
    --minutes) whole "$@"; seconds=$((60 * $2)); shift ;;
    --seconds) whole "$@"; seconds=$2; shift ;;
    --keep) keep=1 ;;
    -h | --help) sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}"; exit ;;
    -*) die "unknown option $1" ;;
    *)
      [[ -f tests/fuzz/$1.cpp && -d tests/fuzz/corpus/$1 ]] || die "no target $1; there are $(ls tests/fuzz/corpus | xargs)"
      targets+=("$1")
      ;;
  esac
  shift
done
((${#targets[@]})) || mapfile -t targets < <(ls tests/fuzz/corpus)

build_targets() {
  command -v clang++ >/dev/null || die "clang++ is missing; on Debian 12: apt-get install clang libclang-rt-14-dev"
  echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    clang++ -x c++ - -fsanitize=fuzzer,address -o /dev/null 2>/dev/null ||
    die "clang++ has no libFuzzer; on Debian 12: apt-get install libclang-rt-14-dev"
  mkdir -p $build
  { cmake --preset fuzz && ninja -C $build fuzz; } >$build/build.log 2>&1 || { tail -n 60 $build/build.log; die "the build failed"; }
}

scratch=$(mktemp -d -p "$([[ -w /dev/shm ]] && echo /dev/shm || echo "${TMPDIR:-/tmp}")")
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch ASAN_OPTIONS=quarantine_size_mb=32 UBSAN_OPTIONS=print_stacktrace=1

# fuzz TARGET ARGUMENT...: its program with the limits that hold for every use.
fuzz() {
  local target=$1 words=tests/fuzz/$1.dict
  shift
  [[ ! -f $words ]] || set -- -dict="$words" "$@"
  $build/tests/fuzz/fuzz_"$target" -max_len=$largest -timeout=$slowest -report_slow_units=$slowest -rss_limit_mb=$memory -malloc_limit_mb=$block "$@"
}

# run TARGET: prints a line of figures; non-zero and the end of the log when something was found.
run() {
  local target=$1 work=$build/corpus/$1 found=$build/found/$1 log=$build/$1.log rc=0 last
  mkdir -p "$work" "$found"
  fuzz "$target" -max_total_time=$seconds -artifact_prefix="$found/" -print_final_stats=1 "$work" \
    "tests/fuzz/corpus/$target" >"$log" 2>&1 || rc=$?
  last=$(grep -E '^#[0-9]+.* cov: ' "$log" | tail -n 1 || true)
  printf '%-12s %9s inputs, %s edges, %s features, corpus of %s files\n' "$target" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$(sed 's/.* cov: \([0-9]*\).*/\1/' <<<"$last")" \
    "$(sed 's/.* ft: \([0-9]*\).*/\1/' <<<"$last")" "$(find "$work" "tests/fuzz/corpus/$target" -type f | wc -l)"
  ((rc == 0)) && return
  grep -vaE '^(#[0-9]+|INFO:|Dictionary:|\s*NEW_FUNC)' "$log" | tail -n 60
  printf '%s: FOUND %s\n' "$target" "$(sed -n 's/.*Test unit written to //p' "$log")"
  return 1
}

# The inputs of build/fuzz/corpus that reach what the committed ones do not: the fewest that cover it.
keep_new() {
  fuzz "$1" -set_cover_merge=1 "tests/fuzz/corpus/$1" "$build/corpus/$1" >"$build/$1.merge.log" 2>&1 ||
    { tail -n 20 "$build/$1.merge.log"; die "the merge failed"; }
}

build_targets
failed=0
for target in "${targets[@]}"; do
  run "$target" || failed=1
  [[ -z $keep ]] || keep_new "$target"
done
exit $failed
