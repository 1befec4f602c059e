// Saving and loading parameters by name as safetensors.
#pragma once

#include "tally/base/file.h"
#include "tally/nn/param.h"

namespace tally {

using Metadata = std::vector<std::pair<std::string, std::string>>;

void save_tensors(const fs::path& path, const std::vector<Param>& tensors, const Metadata& metadata = {});

// Copies values into the tensors (converting f32, bf16 and f64). Every name must be there with its shape, and nothing
// else: the first difference is an Error naming the file and the tensor. Nothing is changed on error.
void load_tensors(const fs::path& path, const std::vector<Param>& tensors);

}  // namespace tally
