// config.json from text to RunConfig: the JSON is written and read back equal, the configuration too, and one that
// passes check() has finite rates and counts that fit. Input that begins with "--" is a list of flags instead, one
// "--KEY VALUE" a line, of which the first eight take the way of the command line.
#include "tally/train/config.h"

#include <cmath>

#include "tally/base/fields.h"
#include "tests/fuzz/fuzz.h"

namespace tally::fuzz {
namespace {

constexpr const char* kName = "config.json";

void check_json(const Json& json, std::string_view text) {
  require(text.find('\0') == std::string_view::npos, "a NUL byte was accepted");
  const std::string line = json.dump();
  const Json back = Json::parse(line, kName);
  require(back == json && back.dump() == line, "the JSON changed");
  require(Json::parse(json.dump(2), kName).dump() == line, "the indented JSON reads otherwise");
}

void check_config(RunConfig& config) {
  const std::string text = config.to_json().dump(1);
  RunConfig back = RunConfig::from_json(Json::parse(text, kName), kName);
  require(fields_diff(fields_of(config), fields_of(back)).empty(), "the configuration changed");
  require(back.to_json().dump(1) == text, "config.json changed");
  const Json identity = identity_of(config);
  require(first_difference(Json::parse(identity.dump(), kName), identity).empty(), "the identity changed");
  if (!accepted("", [&] { config.check(); })) return;
  require(parameter_count(config.model) > 0, "no parameters");
  require(config.tokens_per_step() > 0 && config.context() > 0, "no tokens a step");
  require(std::isfinite(config.time_limit_seconds()), "the time limit is not finite");
  const int64_t last = config.train.steps;
  for (const int64_t step : {int64_t{0}, int64_t{1}, config.schedule.warmup, last / 2, last, last + 1}) {
    const double rate = config.learning_rate(step);
    require(std::isfinite(rate) && rate >= 0 && rate <= config.optim.lr, "the learning rate is out of range");
  }
}

void set_flags(RunConfig& config, std::string_view text) {
  const Fields fields = fields_of(config);
  for (int lines = 0; !text.empty() && lines < 8; ++lines) {  // a wrong key is compared with every key: slow
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view key = line.substr(0, space).substr(std::min<size_t>(2, space));
    const std::string value(line.substr(std::min(space + 1, line.size())));
    accepted("", [&] { fields.find(key, "the command line").set_text(value, "--flag"); });
  }
}

}  // namespace
}  // namespace tally::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tally;
  using namespace tally::fuzz;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  RunConfig config;
  if (text.starts_with("--")) {
    set_flags(config, text);
  } else {
    Json json;
    if (!accepted(kName, [&] { json = Json::parse(text, kName); })) return 0;
    check_json(json, text);
    if (!accepted("", [&] { config = RunConfig::from_json(json, kName); })) return 0;
  }
  check_config(config);
  return 0;
}
