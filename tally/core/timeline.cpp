#include "tally/core/timeline.h"

#include <algorithm>

namespace tally {

void Timeline::charge(const CategoryBytes& live) {
  if (total(live) > total(highest_)) highest_ = live;
}

void Timeline::launch(const std::string& phase, double seconds, const CategoryBytes& live) {
  if (!spans_.empty() && spans_.back().phase == phase)
    spans_.back().launches += 1, spans_.back().seconds += seconds;
  else if (spans_.size() < most_)
    spans_.push_back({phase, 1, seconds});
  moments_.push_back({1, seconds, highest_});
  highest_ = live;
  if (moments_.size() < most_) return;
  for (size_t i = 0; i + 1 < moments_.size(); i += 2) {
    const Moment &a = moments_[i], &b = moments_[i + 1];
    moments_[i / 2] = {a.launches + b.launches, a.seconds + b.seconds, total(b.live) > total(a.live) ? b.live : a.live};
  }
  moments_.resize(moments_.size() / 2);
}

void Timeline::finish() {
  if (!moments_.empty() && total(highest_) > total(moments_.back().live)) moments_.back().live = highest_;
}

Json Timeline::to_json() const {
  double seconds = 0;
  for (const Moment& m : moments_) seconds += m.seconds;
  const bool timed = seconds > 0;
  const auto length = [&](const auto& m) { return timed ? m.seconds : static_cast<double>(m.launches); };
  Json edges = Json::array(), bytes = Json::object(), phases = Json::array();
  double at = 0;
  edges.push_back(at);
  for (const Moment& m : moments_) edges.push_back(at += length(m));
  for (size_t c = 0; c < kCategories; ++c) {
    Json values = Json::array();
    int64_t largest = 0;
    for (const Moment& m : moments_) values.push_back(m.live[c]), largest = std::max(largest, m.live[c]);
    if (largest > 0) bytes.set(name_of(static_cast<Category>(c)), values);
  }
  at = 0;
  for (const Span& s : spans_) {
    phases.push_back(Json::object().set("phase", s.phase).set("from", at).set("to", at + length(s)));
    at += length(s);
  }
  return Json::object()
      .set("unit", timed ? "seconds" : "launches")
      .set("edges", edges)
      .set("bytes", bytes)
      .set("phases", phases);
}

}  // namespace tally
