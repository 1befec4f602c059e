// The program `tally`: the verbs of all files of cli/, run by args.cpp.
#include "cli/verbs.h"

int main(int argc, char** argv) {
  std::vector<tally::cli::Verb> verbs;
  for (auto list :
       {tally::cli::tokenizer_verbs, tally::cli::data_verbs, tally::cli::train_verbs, tally::cli::generate_verbs,
        tally::cli::report_verbs, tally::cli::inspect_verbs, tally::cli::bench_verbs})
    for (const tally::cli::Verb& verb : list()) verbs.push_back(verb);
  return tally::cli::run_program(argc, argv, verbs);
}
