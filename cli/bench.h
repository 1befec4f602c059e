// The parts of the bench verbs.
#pragma once

#include <vector>

#include "cli/args.h"

namespace tally::cli {

Verb bench_attention_verb();             // bench_attention.cpp
std::vector<Verb> bench_matmul_verbs();  // bench_matmul.cpp
std::vector<Verb> bench_step_verbs();    // bench_steps.cpp

}  // namespace tally::cli
