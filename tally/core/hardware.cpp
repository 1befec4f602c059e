#include "tally/core/hardware.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "tally/base/error.h"

namespace tally {

double RateCurve::at(double work) const {
  if (points.empty()) return 0;
  if (work <= points.front().work) return points.front().rate;
  for (size_t i = 1; i < points.size(); ++i) {
    const Point &low = points[i - 1], &high = points[i];
    if (work > high.work) continue;
    const double share = std::log(work / low.work) / std::log(high.work / low.work);
    return low.rate + share * (high.rate - low.rate);
  }
  return points.back().rate;
}

double Hardware::predict(const Cost& cost) const {
  const double products = static_cast<double>(cost.matmul_flops), other = static_cast<double>(cost.other_flops);
  const double moved = static_cast<double>(cost.bytes_read + cost.bytes_written);
  const double moving = moved > 0 ? moved / (step_bytes.points.empty() ? bytes : step_bytes).at(moved) : 0;
  const double multiplying =
      products > 0 ? products / (step_matmul.points.empty() ? matmul : step_matmul).at(products) : 0;
  if (overlaps) return std::max({launch_seconds, moving, multiplying + other / other_flops});
  return launch_seconds + multiplying + std::max(moving, other / other_flops);
}

namespace {

Json curve_to_json(const RateCurve& curve) {
  Json all = Json::array();
  for (const RateCurve::Point& p : curve.points) all.push_back(Json::object().set("work", p.work).set("rate", p.rate));
  return all;
}

// Rising work and positive rates, or an Error: a broken cache entry is measured again.
RateCurve curve_from_json(const Json& json) {
  RateCurve curve;
  for (const Json& p : json.as_array()) curve.points.push_back({p.at("work").as_double(), p.at("rate").as_double()});
  if (curve.points.empty()) fail("hardware: a curve has no points");
  for (size_t i = 0; i < curve.points.size(); ++i) {
    const bool rising = i == 0 ? curve.points[0].work > 0 : curve.points[i].work > curve.points[i - 1].work;
    if (!rising || !(curve.points[i].rate > 0)) fail("hardware: a curve is not rising");
  }
  return curve;
}

}  // namespace

Json Hardware::to_json() const {
  Json json = Json::object();
  json.set("name", name)
      .set("fma_flops", fma_flops)
      .set("matmul", curve_to_json(matmul))
      .set("bytes", curve_to_json(bytes));
  if (!step_matmul.points.empty()) json.set("step_matmul", curve_to_json(step_matmul));
  if (!step_bytes.points.empty()) json.set("step_bytes", curve_to_json(step_bytes));
  json.set("other_flops", other_flops).set("launch_seconds", launch_seconds);
  if (overlaps) json.set("overlaps", true);
  return json;
}

Hardware Hardware::from_json(const Json& json) {
  Hardware h;
  h.name = json.at("name").as_string();
  h.fma_flops = json.at("fma_flops").as_double();
  h.matmul = curve_from_json(json.at("matmul"));
  h.bytes = curve_from_json(json.at("bytes"));
  if (const Json* curve = json.find("step_matmul")) h.step_matmul = curve_from_json(*curve);
  if (const Json* curve = json.find("step_bytes")) h.step_bytes = curve_from_json(*curve);
  h.other_flops = json.at("other_flops").as_double();
  h.launch_seconds = json.at("launch_seconds").as_double();
  if (const Json* overlaps = json.find("overlaps")) h.overlaps = overlaps->as_bool();
  for (double rate : {h.fma_flops, h.other_flops})
    if (!(rate > 0)) fail("hardware {}: a rate is not positive", h.name);
  return h;
}

fs::path cache_folder() {
  const char* own = std::getenv("TALLY_CACHE");
  if (own && *own) return own;
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const fs::path base = xdg && *xdg ? fs::path(xdg) : fs::path(home && *home ? home : "/tmp") / ".cache";
  return base / "tally";
}

fs::path hardware_cache_path() { return cache_folder() / "hardware.json"; }

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
      const bool whole = !h.step_matmul.points.empty() && !h.step_bytes.points.empty();  // else of an older version
      if (h.name == name && whole) return h;
    } catch (const Error&) {
      continue;
    }
  }
  return std::nullopt;
}

void cache_hardware(const Hardware& hardware) {
  Json::Array kept;
  for (const Json& j : read_cache())
    if (const Json* n = j.is_object() ? j.find("name") : nullptr;
        n && n->is_string() && n->as_string() != hardware.name)
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
