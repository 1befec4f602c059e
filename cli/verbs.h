// The verbs of each file, in the order in which `tally --help` lists them.
#pragma once

#include <vector>

#include "cli/args.h"

namespace tally::cli {

std::vector<Verb> tokenizer_verbs();  // tokenizer.cpp
Verb tokenizer_convert_verb();        // tokenizer_convert.cpp; one of tokenizer_verbs()
Verb tokenizer_info_verb();           // tokenizer_info.cpp; one of tokenizer_verbs()
std::vector<Verb> data_verbs();       // data.cpp
std::vector<Verb> train_verbs();      // train.cpp
std::vector<Verb> generate_verbs();   // generate.cpp
std::vector<Verb> report_verbs();     // report.cpp
std::vector<Verb> inspect_verbs();    // inspect.cpp
std::vector<Verb> bench_verbs();      // bench_ops.cpp

}  // namespace tally::cli
