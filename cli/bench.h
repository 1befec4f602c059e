// The parts of the bench verbs.
#pragma once

#include <vector>

#include "cli/args.h"

namespace tally::cli {

std::vector<Verb> bench_matmul_verbs();  // bench_matmul.cpp
std::vector<Verb> bench_step_verbs();    // bench_steps.cpp

}  // namespace tally::cli
