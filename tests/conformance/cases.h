// The course's cases (conformance_cases.json of the development data), one test an id. A case is a function that is
// given the entry of its id and takes the expected values from it, or the part of Tally that is still missing.
#pragma once

#include <string>
#include <vector>

#include "tally/base/json.h"

namespace tally::conformance {

struct Case {
  const char* id;
  void (*run)(const Json& expect);
  const char* missing = nullptr;  // set where run is null
};

std::vector<Case> op_cases();     // C13 to C18, C22, C49: on a card too
std::vector<Case> model_cases();  // C20, C23, C24, C28
std::vector<Case> text_cases();   // the tokenizers'
std::vector<Case> dtype_cases();  // C31, C32
std::vector<Case> missing_cases();

std::vector<double> numbers(const Json& array);
// |got - want| <= tolerance, element by element.
void expect_numbers(const std::vector<double>& got, const std::vector<double>& want, double tolerance);

}  // namespace tally::conformance
