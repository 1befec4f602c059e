#include "tally/base/error.h"

namespace tally {

void assertion_failed(const char* expression, const char* file, int line) {
  throw std::logic_error(fmt::format("internal error: {} does not hold at {}:{}", expression, file, line));
}

}  // namespace tally
