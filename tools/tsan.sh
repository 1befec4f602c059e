#!/usr/bin/env bash
# The pool, the loader and the trainer under the thread sanitizer (preset tsan, build/tsan), with 2 and 4 threads.
#   tools/tsan.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/tsan
mkdir -p $build
programs=(tally_base_tests tally_data_tests tally_train_tests)
{ cmake --preset tsan && ninja -C $build "${programs[@]}"; } >$build/build.log 2>&1 || { tail -n 60 $build/build.log; exit 1; }
export TSAN_OPTIONS=halt_on_error=1 TALLY_SHARED=$PWD/../shared
for threads in 2 4; do
  for program in "${programs[@]}"; do
    # What reads files and numbers alone has no threads to look at, and is slow here.
    filter='*' layer=${program#tally_}
    [[ $program == tally_base_tests ]] && filter='*arallel*:*Pool*'
    [[ $program == tally_train_tests ]] && filter='Trainer*:Step*:Saver*:Profile*:Checkpoint*'
    TALLY_THREADS=$threads "$build/tally/${layer%_tests}/$program" --gtest_brief=1 --gtest_filter="$filter"
  done
done
