// Failure has three kinds here: `Error` for the user's mistake (one line: what, where, what to do),
// a return value for what is expected, and TALLY_ASSERT for our own bug. Nothing exits or aborts on input.
// The command line maps Error to exit 2 and RunError to exit 1.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tally {

// What Python raises for it: RuntimeError, ValueError, IndexError, TypeError.
enum class ErrorKind { kRuntime, kValue, kIndex, kType };

// Wrong use: a bad flag, value, file or shape. Nothing has been changed when it is thrown.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ErrorKind k = ErrorKind::kRuntime)
      : std::runtime_error(message), kind(k) {}
  ErrorKind kind;
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

// As PyTorch's users expect: a value out of its domain, an index out of range, a wrong type or dtype.
template <class... A>
[[noreturn]] void fail_value(fmt::format_string<A...> format, A&&... args) {
  throw Error(fmt::format(format, std::forward<A>(args)...), ErrorKind::kValue);
}
template <class... A>
[[noreturn]] void fail_index(fmt::format_string<A...> format, A&&... args) {
  throw Error(fmt::format(format, std::forward<A>(args)...), ErrorKind::kIndex);
}
template <class... A>
[[noreturn]] void fail_type(fmt::format_string<A...> format, A&&... args) {
  throw Error(fmt::format(format, std::forward<A>(args)...), ErrorKind::kType);
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
