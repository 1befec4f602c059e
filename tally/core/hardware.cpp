#include "tally/core/hardware.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "tally/base/error.h"

namespace tally {

double Hardware::predict(const Cost& cost) const {
  const double bytes = static_cast<double>(cost.bytes_read + cost.bytes_written);
  const double bandwidth = bytes <= static_cast<double>(cached_bytes) ? cached_bytes_per_second : bytes_per_second;
  const double rest = std::max(static_cast<double>(cost.other_flops) / other_flops, bytes / bandwidth);
  return launch_seconds + std::max(static_cast<double>(cost.matmul_flops) / matmul_flops, rest);
}

Json Hardware::to_json() const {
  return Json::object()
      .set("name", name)
      .set("fma_flops", fma_flops)
      .set("matmul_flops", matmul_flops)
      .set("other_flops", other_flops)
      .set("bytes_per_second", bytes_per_second)
      .set("cached_bytes_per_second", cached_bytes_per_second)
      .set("cached_bytes", cached_bytes)
      .set("launch_seconds", launch_seconds);
}

Hardware Hardware::from_json(const Json& json) {
  Hardware h;
  h.name = json.at("name").as_string();
  h.fma_flops = json.at("fma_flops").as_double();
  h.matmul_flops = json.at("matmul_flops").as_double();
  h.other_flops = json.at("other_flops").as_double();
  h.bytes_per_second = json.at("bytes_per_second").as_double();
  h.cached_bytes_per_second = json.at("cached_bytes_per_second").as_double();
  h.cached_bytes = json.at("cached_bytes").as_int();
  h.launch_seconds = json.at("launch_seconds").as_double();
  for (double rate : {h.fma_flops, h.matmul_flops, h.other_flops, h.bytes_per_second, h.cached_bytes_per_second})
    if (!(rate > 0)) fail("hardware {}: a rate is not positive", h.name);
  return h;
}

fs::path hardware_cache_path() {
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const fs::path base = xdg && *xdg ? fs::path(xdg) : fs::path(home && *home ? home : "/tmp") / ".cache";
  return base / "tally" / "hardware.json";
}

namespace {

Json::Array read_cache() {
  try {
    return Json::parse(read_file(hardware_cache_path()), "hardware.json").as_array();
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::optional<Hardware> cached_hardware(const std::string& name) {
  for (const Json& j : read_cache()) {
    try {
      Hardware h = Hardware::from_json(j);
      if (h.name == name) return h;
    } catch (const Error&) {
      continue;
    }
  }
  return std::nullopt;
}

void cache_hardware(const Hardware& hardware) {
  Json::Array kept;
  for (const Json& j : read_cache())
    if (const Json* n = j.is_object() ? j.find("name") : nullptr; n && n->is_string() && n->as_string() != hardware.name)
      kept.push_back(j);
  kept.push_back(hardware.to_json());
  try {
    make_folder(hardware_cache_path().parent_path());
    write_file_atomic(hardware_cache_path(), Json(kept).dump(2) + "\n");
  } catch (const Error&) {
  }
}

std::string cpu_model_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind("model name", 0) == 0)
      if (const size_t colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "cpu";
}

}  // namespace tally
