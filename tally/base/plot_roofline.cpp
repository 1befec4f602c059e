// The roofline of plot.h. Labels are placed beside their points where there is room, the largest share first; a point
// without room for its label still has its tip.
#include <algorithm>
#include <cmath>

#include "tally/base/error.h"
#include "tally/base/plot_canvas.h"

namespace tally {

namespace {

struct Box {
  double left, top, right, bottom;
  bool meets(const Box& o) const { return left < o.right && o.left < right && top < o.bottom && o.top < bottom; }
};

bool positive(double v) { return drawable(v) && v > 1e-30; }

std::string percent(double share) {
  if (!drawable(share)) return "-";
  return fmt::format("{:.{}f} %", 100 * share, share < 0.0995 ? 1 : 0);
}

std::string tip_of(const RooflinePoint& p) {
  return fmt::format("{}: {}FLOP/s, {} FLOP/byte, {} of the time", p.name,
                     value_text(p.flops_per_second, PlotUnit::kNumber), value_text(p.intensity, PlotUnit::kNumber),
                     percent(p.share));
}

double radius_of(const RooflinePoint& p) {
  const double share = drawable(p.share) ? std::clamp(p.share, 0.0, 1.0) : 0;
  return std::max(2.5, 22 * std::sqrt(share));
}

// Where a label of `width` may stand beside a circle, the preferred place first.
std::vector<Box> places(double x, double y, double r, double width) {
  const double h = 12;
  return {{x + r + 2, y - 6, x + r + 2 + width, y + 6},
          {x - r - 2 - width, y - 6, x - r - 2, y + 6},
          {x - width / 2, y - r - 2 - h, x + width / 2, y - r - 2},
          {x - width / 2, y + r + 2, x + width / 2, y + r + 2 + h},
          {x + r, y - r - h, x + r + width, y - r},
          {x - r - width, y + r, x - r, y + r + h}};
}

void draw_labels(Canvas& canvas, const std::vector<RooflinePoint>& points, const Axis& x, const Axis& y,
                 const Box& area, std::vector<Box> taken) {
  for (const RooflinePoint& p : points) {
    const double px = x.at(p.intensity), py = y.at(p.flops_per_second), r = radius_of(p);
    taken.push_back({px - r, py - r, px + r, py + r});
  }
  for (const RooflinePoint& p : points) {
    const std::string label = shortened(p.name, 140, kPlotSmall);
    for (const Box& box :
         places(x.at(p.intensity), y.at(p.flops_per_second), radius_of(p), text_width(label, kPlotSmall))) {
      if (box.left < area.left || box.right > area.right || box.top < area.top || box.bottom > area.bottom) continue;
      if (std::any_of(taken.begin(), taken.end(), [&](const Box& t) { return t.meets(box); })) continue;
      canvas.text(box.left, box.bottom - 2, label, "start", "soft halo");
      taken.push_back(box);
      break;
    }
  }
}

// The slope from the left edge to the ridge, then flat; only the part inside the plot. Labels go where it is free.
void draw_roof(Canvas& canvas, const Roofline& roof, const Axis& x, const Axis& y, std::vector<Box>& taken) {
  const double ridge = roof.peak_flops / roof.peak_bytes;
  const double begin = std::max(x.low(), y.low() / roof.peak_bytes);
  std::string d;
  const auto point = [&](double intensity, double rate) {
    d += fmt::format("{}{} {}", d.empty() ? "M" : "L", number(x.at(intensity)), number(y.at(rate)));
  };
  point(begin, std::min(roof.peak_flops, begin * roof.peak_bytes));
  if (ridge > begin && ridge < x.high()) point(ridge, roof.peak_flops);
  point(x.high(), std::min(roof.peak_flops, x.high() * roof.peak_bytes));
  canvas.path(d, "roof", "what the machine allows");
  const auto label = [&](const std::string& text, double left, double base) {
    canvas.text(left, base, text, "start", "soft halo");
    taken.push_back({left, base - 10, left + text_width(text, kPlotSmall), base + 2});
  };
  const std::string compute = value_text(roof.peak_flops, PlotUnit::kNumber) + "FLOP/s";
  const std::string memory = value_text(roof.peak_bytes, PlotUnit::kBytes) + "/s";
  label(compute, x.at(x.high()) - text_width(compute, kPlotSmall) - 2, y.at(roof.peak_flops) - 6);
  const double middle = std::sqrt(begin * std::clamp(ridge, begin, x.high()));
  const double right = x.at(middle) - 8, left = std::max(x.at(x.low()) + 4, right - text_width(memory, kPlotSmall));
  label(memory, left, y.at(std::min(roof.peak_flops, middle * roof.peak_bytes)) - 6);
}

std::string names_without_place(const std::vector<RooflinePoint>& points) {
  std::string text;
  for (const RooflinePoint& p : points)
    if (!positive(p.intensity) || !positive(p.flops_per_second))
      text += (text.empty() ? "no FLOPs: " : ", ") + p.name + " " + percent(p.share);
  return text;
}

}  // namespace

std::string roofline_svg(const Roofline& roof) {
  constexpr double kTop = 40, kBottom = 290;
  const std::string rest = names_without_place(roof.points);
  Canvas canvas(roof.title, kBottom + (rest.empty() ? 40 : 58));
  std::vector<RooflinePoint> points;
  for (const RooflinePoint& p : roof.points)
    if (positive(p.intensity) && positive(p.flops_per_second)) points.push_back(p);
  if (!rest.empty()) canvas.text(8, kBottom + 50, shortened(rest, kPlotWidth - 16, kPlotSmall), "start", "soft");
  if (!positive(roof.peak_flops) || !positive(roof.peak_bytes)) {
    canvas.no_data(kTop, kBottom);
    return canvas.finish();
  }
  std::stable_sort(points.begin(), points.end(),
                   [](const auto& a, const auto& b) { return radius_of(a) > radius_of(b); });
  const double ridge = roof.peak_flops / roof.peak_bytes;
  double left = ridge / 30, right = ridge * 10, low = roof.peak_flops / 100, high = roof.peak_flops;
  for (const RooflinePoint& p : points) {
    left = std::min(left, p.intensity), right = std::max(right, p.intensity);
    low = std::min(low, p.flops_per_second), high = std::max(high, p.flops_per_second);
  }
  Axis x = Axis::logarithmic(left / 1.6, right * 1.6, PlotUnit::kNumber, 7);
  Axis y = Axis::logarithmic(low / 2, high * 2, PlotUnit::kNumber, 6);
  draw_axes(canvas, x, y, kTop, kBottom, "FLOPs a byte");
  canvas.text(8, 32, "FLOP/s; the area of a point is its share of the time", "start", "soft");
  std::vector<Box> taken;
  draw_roof(canvas, roof, x, y, taken);
  for (size_t i = 0; i < points.size(); ++i) {
    const std::string color = fmt::format("{} {}", fill_class(i), stroke_class(i % kPlotColors));
    canvas.circle(x.at(points[i].intensity), y.at(points[i].flops_per_second), radius_of(points[i]), "point " + color,
                  tip_of(points[i]));
  }
  draw_labels(canvas, points, x, y, {x.at(x.low()), kTop, kPlotWidth - 2, kBottom - 2}, taken);
  return canvas.finish();
}

}  // namespace tally
