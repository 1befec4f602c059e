// The parts of a run report that come from ledger.json: memory over a step, plan beside measured, work by scope, the
// roofline. Each returns markup and throws Error where the ledger lacks what it shows (one of another version, say).
#pragma once

#include <string>

#include "tally/base/json.h"

namespace tally {

std::string memory_html(const Json& ledger);
std::string plan_html(const Json& ledger);
std::string scopes_html(const Json& ledger);

// profile: null, or a profile.json {entries: [{op, phase, seconds, launches, matmul_flops, other_flops, bytes_read,
// bytes_written}]}, whose measured times then stand in place of the predicted ones.
std::string roofline_html(const Json& ledger, const Json& profile);

}  // namespace tally
