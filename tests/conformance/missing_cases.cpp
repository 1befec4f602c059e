// Cases of parts that Tally does not have yet.
#include "tests/conformance/cases.h"

namespace tally::conformance {

std::vector<Case> missing_cases() {
  return {
      {"C25", nullptr, "days and MFU of a run from its FLOPs (scale)"},
      {"C26", nullptr, "the largest model that fits memory (scale)"},
      {"C30", nullptr, "days and MFU of a run from its FLOPs (scale)"},
      {"C33", nullptr, "arithmetic intensity of any op on any accelerator (scale)"},
      {"C34", nullptr, "accelerators by name with their ridge points (scale)"},
      {"C36", nullptr, "wave quantisation in the roofline (scale)"},
      {"C37", nullptr, "latency and throughput of serving, planned (scale)"},
      {"C39", nullptr, "intensity of prefill and decode, planned (scale)"},
      {"C40", nullptr, "multi-head latent attention (nn)"},
      {"C41", nullptr, "speculative decoding (serve)"},
      {"C43", nullptr, "affine integer quantisation (quant)"},
      {"C44", nullptr, "collectives (comm)"},
      {"C46", nullptr, "parallel layouts, planned (scale)"},
      {"C47", nullptr, "data parallelism (parallel)"},
      {"C51", nullptr, "IsoFLOP fits (scale)"},
      {"C53", nullptr, "the scheduler of experiments (scale)"},
      {"C54", nullptr, "MinHash (data)"},
      {"C55", nullptr, "locality-sensitive hashing (data)"},
      {"C57", nullptr, "deduplication (data)"},
      {"C59", nullptr, "group advantages (align)"},
      {"C60", nullptr, "GRPO and its variants (align)"},
      {"C62", nullptr, "length normalisation of policy losses (align)"},
      {"C64", nullptr, "the clipped policy loss (align)"},
      {"C65", nullptr, "DPO (align)"},
      {"C67", nullptr, "patches of images (models)"},
      {"C68", nullptr, "answers of multiple choice and arithmetic (eval)"},
  };
}

}  // namespace tally::conformance
