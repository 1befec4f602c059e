// Axes: round ticks (steps of 1, 2 or 5 times a power of ten; of 1, 2, 4 ... of a power of 1024 for bytes) and their
// labels.
#include <algorithm>
#include <cmath>

#include "tally/base/error.h"
#include "tally/base/plot_canvas.h"

namespace tally {

namespace {

// What the labels of an axis are counted in: value = label * scale + suffix.
struct Scale {
  double scale = 1;
  std::string suffix;
};

Scale bytes_scale(double largest) {
  constexpr const char* kNames[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  Scale s{1, kNames[0]};
  for (int i = 1; i < 6 && largest >= s.scale * 1024; ++i) s = {s.scale * 1024, kNames[i]};
  return s;
}

Scale seconds_scale(double largest) {
  if (largest >= 120 * 60) return {3600, " h"};
  if (largest >= 120) return {60, " min"};
  if (largest >= 0.9999) return {1, " s"};
  if (largest >= 0.9999e-3) return {1e-3, " ms"};
  return {largest >= 0.9999e-6 ? 1e-6 : 1e-9, largest >= 0.9999e-6 ? " us" : " ns"};
}

Scale number_scale(double largest) {
  constexpr const char* kNames[] = {" k", " M", " G", " T", " P"};
  if (largest == 0 || (largest >= 0.9999e-3 && largest < 0.9999e4)) return {};
  const int exponent = static_cast<int>(std::floor(std::log10(largest) + 1e-9));
  if (exponent >= 3 && exponent < 18) return {std::pow(1000, exponent / 3), kNames[exponent / 3 - 1]};
  return {std::pow(10, exponent), fmt::format("e{}", exponent)};
}

Scale scale_of(double largest, PlotUnit unit) {
  if (unit == PlotUnit::kBytes) return bytes_scale(largest);
  return unit == PlotUnit::kSeconds ? seconds_scale(largest) : number_scale(largest);
}

std::string trimmed(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (text.find('.') == std::string::npos) return text == "-0" ? "0" : text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

// The smallest 1, 2 or 5 times a power of ten that is at least `least`; powers of two for bytes.
double round_step(double least, bool binary) {
  if (binary && least > 1) return std::exp2(std::ceil(std::log2(least) - 1e-9));
  const double power = std::pow(10, std::floor(std::log10(least) + 1e-9));
  for (double step : {1.0, 2.0, 5.0})
    if (step * power >= least * (1 - 1e-9)) return step * power;
  return 10 * power;
}

}  // namespace

std::string value_text(double value, PlotUnit unit) {
  if (!std::isfinite(value)) return "-";
  if (std::abs(value) < 1e-300) return "0";  // subnormal: has no scale
  const Scale s = scale_of(std::abs(value), unit);
  const double shown = value / s.scale;
  const int digits = static_cast<int>(std::floor(std::log10(std::abs(shown)) + 1e-9));
  return trimmed(shown, std::clamp(3 - digits, 0, 6)) + s.suffix;
}

Axis Axis::linear(double low, double high, PlotUnit unit, int ticks, bool round) {
  Axis axis;
  if (!(high - low > 1e-90)) {  // one value: some room around it
    const double room = std::abs(low) < 1e-90 ? 1 : std::abs(low) * 0.1;
    high = low + room, low = low >= 0 && low < room ? 0 : low - room;
  }
  // Neighbouring doubles have no round numbers between them.
  const double least = std::max(std::abs(low), std::abs(high)) * 1e-9;
  if (high - low < least) low -= least, high += least;
  const double step = round_step((high - low) / ticks, unit == PlotUnit::kBytes);
  if (round) low = std::floor(low / step + 1e-6) * step, high = std::ceil(high / step - 1e-6) * step;
  axis.low_ = low, axis.high_ = high;
  const Scale s = scale_of(std::max(std::abs(low), std::abs(high)), unit);
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(step / s.scale) - 1e-9)), 0, 9) +
                       (unit == PlotUnit::kBytes && step < s.scale ? 2 : 0);
  for (double n = std::ceil(low / step - 1e-6); n * step <= high + step * 1e-6; ++n)
    axis.ticks_.push_back({n * step, n == 0 ? "0" : trimmed(n * step / s.scale, decimals) + s.suffix});
  return axis;
}

Axis Axis::logarithmic(double low, double high, PlotUnit unit, int most_ticks) {
  if (!(high > low * 1.0001)) low *= 0.8, high *= 1.25;
  Axis axis;
  axis.low_ = low, axis.high_ = high, axis.log_ = true;
  const int first = static_cast<int>(std::floor(std::log10(low))), last = static_cast<int>(std::ceil(std::log10(high)));
  const int every = std::max(1, (last - first + most_ticks - 1) / most_ticks);
  const std::vector<double> parts = last - first <= 2 ? std::vector<double>{1, 2, 5} : std::vector<double>{1};
  for (int exponent = first; exponent <= last; ++exponent)
    for (double part : parts) {
      const double value = part * std::pow(10, exponent);
      if (value < low * 0.9999 || value > high * 1.0001) continue;
      axis.ticks_.push_back({value, exponent % every == 0 ? value_text(value, unit) : ""});
    }
  if (axis.ticks_.size() < 2) axis.ticks_ = linear(low, high, unit, 4, false).ticks_;
  return axis;
}

double Axis::at(double value) const {
  const double share = log_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
  return from_ + share * (to_ - from_);
}

double Axis::label_width() const {
  double width = 0;
  for (const Tick& t : ticks_) width = std::max(width, text_width(t.label, kPlotSmall));
  return width;
}

void draw_axes(Canvas& canvas, Axis& x, Axis& y, double top, double bottom, const std::string& x_label) {
  const double left = 14 + std::max(16.0, y.label_width()), right = kPlotWidth - 14;
  x.place(left, right), y.place(bottom, top);
  for (const Tick& t : y.ticks()) {
    canvas.line(left, y.at(t.value), right, y.at(t.value), "grid");
    if (!t.label.empty()) canvas.text(left - 6, y.at(t.value) + 4, t.label, "end", "soft");
  }
  double free = 0;  // where the next label of x may begin
  for (const Tick& t : x.ticks()) {
    const double half = text_width(t.label, kPlotSmall) / 2, at = std::min(x.at(t.value), kPlotWidth - 2 - half);
    canvas.line(x.at(t.value), bottom, x.at(t.value), bottom + 4, "frame");
    if (t.label.empty() || at - half < free) continue;
    canvas.text(at, bottom + 16, t.label, "middle", "soft");
    free = at + half + 6;
  }
  canvas.line(left, bottom, right, bottom, "frame");
  if (!x_label.empty()) canvas.text((left + right) / 2, bottom + 32, x_label, "middle", "soft");
}

}  // namespace tally
