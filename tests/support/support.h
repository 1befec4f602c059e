// Helpers for every test program: scratch folders, the optional shared data, one-line error checks.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tally/base/error.h"

namespace tally::test {

// A fresh folder, removed with all it holds at the end of the scope.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Path of a file in the development data set, which a user's checkout does not have (TALLY_SHARED names it).
// Empty when absent: such a test prints that the data is not here and ends; the other tests still run.
std::filesystem::path shared_file(const std::string& relative);

// Runs f, expects an Error whose single line contains `part`.
template <class F>
void expect_error(const F& f, const std::string& part) {
  try {
    f();
    ADD_FAILURE() << "no error; expected one with: " << part;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << "error was: " << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << "not one line: " << e.what();
  }
}

}  // namespace tally::test

// Ends the test with a printed reason where the optional shared data is absent.
#define TALLY_SHARED_FILE(name, relative)                                  \
  const std::filesystem::path name = ::tally::test::shared_file(relative); \
  if (name.empty()) {                                                      \
    GTEST_SKIP() << "optional development data is not here: " << relative; \
  }                                                                        \
  static_assert(true)
