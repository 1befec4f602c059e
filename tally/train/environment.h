// Where and when a run took place: kept in ledger.json and shown by the run report.
#pragma once

#include <string>

#include "tally/base/json.h"

namespace tally {

// {tally_version, cpu, isa, threads, matmul (matmul_precision()), os, started}; now, on this machine.
Json environment_json();

std::string utc_now();  // "2025-01-31 18:05:00 UTC"

}  // namespace tally
