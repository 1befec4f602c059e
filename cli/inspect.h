// What the inspect verbs share: a configuration from a preset, a run or flags, and columns of text.
#pragma once

#include <string>
#include <vector>

#include "cli/args.h"
#include "tally/train/config.h"

namespace tally::cli {

// Fields of the verbs that look at a configuration: --preset NAME or --model DIR, then any key of a run.
struct InspectConfig {
  std::string preset_name, model_dir;
  RunConfig run_config;
  bool json = false;

  static constexpr Alias kAliases[] = {{"model", "model_dir"}, {"data", "data.dir"}, {"context", "train.context"}};

  void fields(Fields& f);
  void prepare(const InspectConfig& asked, const std::vector<std::string>& given);
  // train.device, with train.matmul set for the process; throws Error when it cannot compute here.
  Device usable_device() const;
};

// Rows of cells as aligned text; the columns from `numbers_from` on are set to the right.
std::string columns_text(const std::vector<std::vector<std::string>>& rows, size_t numbers_from);

std::vector<Verb> inspect_checkpoint_verbs();  // inspect_files.cpp
std::vector<Verb> inspect_machine_verbs();     // inspect_machine.cpp

}  // namespace tally::cli
