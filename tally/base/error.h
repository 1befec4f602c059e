// Failure has three kinds here: `Error` for the user's mistake (one line: what, where, what to do),
// a return value for what is expected, and TALLY_ASSERT for our own bug. Nothing exits or aborts on input.
// The command line maps Error to exit 2 and RunError to exit 1.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tally {

// Wrong use: a bad flag, value, file or shape. Nothing has been changed when it is thrown.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  std::string details;  // lines that the command line prints below the message: a table, what would work. Often empty
};

// The request was right but could not be carried out: full disk, a loss that is not finite.
class RunError : public Error {
 public:
  using Error::Error;
};

template <class... A>
[[noreturn]] void fail(fmt::format_string<A...> format, A&&... args) {
  throw Error(fmt::format(format, std::forward<A>(args)...));
}

template <class... A>
[[noreturn]] void fail_run(fmt::format_string<A...> format, A&&... args) {
  throw RunError(fmt::format(format, std::forward<A>(args)...));
}

// Called by TALLY_ASSERT; throws std::logic_error so that a server survives our bug.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace tally

#define TALLY_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::tally::assertion_failed(#condition, __FILE__, __LINE__))
