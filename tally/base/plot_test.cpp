// Plots: well-formed and escaped, nothing but finite numbers, round ticks, extremes kept when points are thinned.
#include "tally/base/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "tally/base/plot_canvas.h"
#include "tests/support/support.h"

namespace tally {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

// The numbers of an attribute are finite and within a wide margin of the picture.
void expect_coordinates(const std::string& value) {
  ASSERT_EQ(value.find_first_not_of("0123456789.,- MLHVhZ"), std::string::npos) << value;
  const char* at = value.c_str();
  while (*at) {
    char* end = nullptr;
    const double v = std::strtod(at, &end);
    if (end != at) {
      EXPECT_LT(std::abs(v), 2000) << value;
    }
    at = end == at ? at + 1 : end;
  }
}

// Tags open and close in order, attributes are quoted, coordinates are numbers.
void expect_picture(const std::string& svg) {
  const std::vector<std::string> places = {"x",  "y", "x1",    "y1",     "x2",     "y2", "cx",
                                           "cy", "r", "width", "height", "points", "d",  "viewBox"};
  ASSERT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at)) {
    const size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    std::string tag = svg.substr(at + 1, end - at - 1);
    at = end + 1;
    ASSERT_EQ(svg.substr(at, svg.find('<', at) - at).find('>'), std::string::npos) << "a bare > in " << svg;
    if (tag.starts_with('/')) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), tag.substr(1));
      open.pop_back();
      continue;
    }
    size_t space = tag.find(' ');
    const std::string name = tag.substr(0, space);
    while (space < tag.size() && tag[space] == ' ') {
      const size_t equals = tag.find("=\"", space), quote = tag.find('"', equals + 2);
      ASSERT_NE(quote, std::string::npos) << tag;
      const std::string key = tag.substr(space + 1, equals - space - 1);
      if (std::find(places.begin(), places.end(), key) != places.end())
        expect_coordinates(tag.substr(equals + 2, quote - equals - 2));
      space = quote + 1;
    }
    if (!tag.ends_with('/')) open.push_back(name);
  }
  EXPECT_TRUE(open.empty());
}

std::string chart(std::vector<Series> series, bool log_y = false) {
  LineChart c;
  c.title = "loss", c.x_label = "step", c.series = std::move(series), c.log_y = log_y;
  const std::string svg = line_chart_svg(c);
  expect_picture(svg);
  return svg;
}

TEST(Plot, EscapesMarkupControlsAndBadBytes) {
  EXPECT_EQ(escape_markup("<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
  EXPECT_EQ(escape_markup(std::string_view("\0\n\t\x1b\x7f", 5)), "␀␊␉␛␡");
  EXPECT_EQ(escape_markup("h\xC3\xA9 \xF0\x9F\x98\x80"), "hé 😀");
  EXPECT_EQ(escape_markup("\xFF\xC0\x80\xED\xA0\x80\xE2\x82"), "��������");
  EXPECT_EQ(escape_markup("\xC2\x85"), "&lt;U+0085&gt;");
}

TEST(Plot, LineChartHasOnePolylineASeriesAndALegendFromTwo) {
  const std::string one = chart({{"train", {0, 1, 2}, {3, 2, 1}}});
  EXPECT_EQ(count(one, "<polyline"), 1u);
  EXPECT_EQ(count(one, ">train</text>"), 0u);
  const std::string two = chart({{"train", {0, 1, 2}, {3, 2, 1}}, {"val", {1, 2}, {2.5, 2}}});
  EXPECT_EQ(count(two, "<polyline"), 2u);
  EXPECT_EQ(count(two, ">val</text>"), 1u);
  EXPECT_EQ(count(two, "no data"), 0u);
}

TEST(Plot, NothingButFiniteNumbers) {
  EXPECT_EQ(count(chart({}), "no data"), 1u);
  EXPECT_EQ(count(chart({{"a", {}, {}}, {"b", {kNan, 1}, {1, kInf}}}), "no data"), 1u);
  EXPECT_EQ(count(chart({{"a", {0, 1, 2, 3, 4}, {1, 2, kNan, 2, 1}}}), "<polyline"), 2u);  // a gap
  EXPECT_EQ(count(chart({{"a", {0, 1}, {-1, 0}}}, true), "no data"), 1u);
  for (double v : {0.0, 1.0, -7.0, 1e-310, 1e300, 1e99, 5e-324})
    for (bool log_y : {false, true}) {
      chart({{"a", {1}, {v}}}, log_y);
      chart({{"a", {1, 2}, {v, v}}}, log_y);
      chart({{"a", {1, 1}, {v, std::nextafter(v, 2 * v + 1)}}}, log_y);
      chart({{"a", {0, 1}, {-v, v}}, {"b", {5}, {kNan}}}, log_y);
    }
}

TEST(Plot, LogarithmicAxisMapsDecadesToEqualSteps) {
  Axis axis = Axis::logarithmic(1, 1e4, PlotUnit::kNumber, 5);
  axis.place(0, 400);
  for (int i = 0; i <= 4; ++i) EXPECT_NEAR(axis.at(std::pow(10, i)), 100 * i, 1e-9);
  std::vector<std::string> labels;
  for (const Tick& t : axis.ticks()) labels.push_back(t.label);
  EXPECT_EQ(labels, (std::vector<std::string>{"1", "10", "100", "1000", "10 k"}));
  EXPECT_GE(Axis::logarithmic(3.1, 3.4, PlotUnit::kNumber, 5).ticks().size(), 2u);
}

std::vector<std::string> labels_of(double low, double high, PlotUnit unit) {
  std::vector<std::string> labels;
  const Axis axis = Axis::linear(low, high, unit, 5, true);
  for (const Tick& t : axis.ticks()) labels.push_back(t.label);
  return labels;
}

TEST(Plot, TicksAreRound) {
  using Labels = std::vector<std::string>;
  EXPECT_EQ(labels_of(0.13, 9.7, PlotUnit::kNumber), (Labels{"0", "2", "4", "6", "8", "10"}));
  EXPECT_EQ(labels_of(0, 0.0006, PlotUnit::kNumber), (Labels{"0", "2e-4", "4e-4", "6e-4"}));
  EXPECT_EQ(labels_of(0, 100000, PlotUnit::kNumber), (Labels{"0", "20 k", "40 k", "60 k", "80 k", "100 k"}));
  EXPECT_EQ(labels_of(2.31, 2.36, PlotUnit::kNumber), (Labels{"2.31", "2.32", "2.33", "2.34", "2.35", "2.36"}));
  EXPECT_EQ(labels_of(0, 5.5 * 1048576, PlotUnit::kBytes), (Labels{"0", "2 MiB", "4 MiB", "6 MiB"}));
  EXPECT_EQ(labels_of(0, 0.05, PlotUnit::kSeconds), (Labels{"0", "10 ms", "20 ms", "30 ms", "40 ms", "50 ms"}));
  EXPECT_EQ(value_text(1536, PlotUnit::kBytes), "1.5 KiB");
  EXPECT_EQ(value_text(2.5e-4, PlotUnit::kSeconds), "250 us");
  EXPECT_EQ(value_text(123456789, PlotUnit::kNumber), "123.5 M");
  EXPECT_EQ(value_text(kNan, PlotUnit::kNumber), "-");
  EXPECT_EQ(value_text(5e-324, PlotUnit::kNumber), "0");
}

TEST(Plot, ManyPointsAreThinnedAndExtremesKept) {
  Series s{"a", {}, {}};
  for (int i = 0; i < 100000; ++i) s.x.push_back(i), s.y.push_back(std::sin(i * 0.7));
  s.y[31337] = 50, s.y[77777] = -50;
  const std::string svg = chart({s});
  EXPECT_LT(svg.size(), 40000u);
  Axis y = Axis::linear(-50, 50, PlotUnit::kNumber, 5, true);
  y.place(214, 34);
  EXPECT_GE(count(svg, "," + number(y.at(50))), 1u);
  EXPECT_GE(count(svg, "," + number(y.at(-50))), 1u);
}

TEST(Plot, StackedStepsSumTheLayers) {
  StackedSteps plot;
  plot.title = "memory", plot.edges = {0, 1, 2, 3};
  plot.layers = {{"parameter", {1024, 1024, 1024}}, {"cache", {0, 0, 0}}, {"activation", {0, 3072, 0}}};
  plot.spans = {{"forward", 0, 2}, {"backward", 2, 3}};
  const std::string svg = stacked_steps_svg(plot);
  expect_picture(svg);
  EXPECT_EQ(count(svg, "<path class=\"area"), 2u);
  EXPECT_EQ(count(svg, "cache"), 0u);
  EXPECT_EQ(count(svg, ">4 KiB</text>"), 1u);
  EXPECT_EQ(count(svg, ">forward</text>"), 1u);
  plot.layers[0].values = {kNan, -1, kInf};
  plot.layers[2].values = {};
  expect_picture(stacked_steps_svg(plot));
  EXPECT_EQ(count(stacked_steps_svg(plot), "no data"), 1u);
  EXPECT_EQ(count(stacked_steps_svg({}), "no data"), 1u);
  plot.edges = {0, kNan, 2, 1};
  expect_picture(stacked_steps_svg(plot));
}

TEST(Plot, BarsAreAsLongAsTheirValues) {
  BarChart chart;
  chart.title = "time", chart.parts = {"forward", "backward"};
  chart.bars = {{"blocks.0", {1, 3}, "4 s"}, {"<head>", {2, 0}, "2 s"}, {"bad", {kNan, -1}, "?"}};
  const std::string svg = bars_svg(chart);
  expect_picture(svg);
  EXPECT_EQ(count(svg, "<rect class=\"area"), 2u + 3u);  // legend and bars
  EXPECT_GE(count(svg, "&lt;head&gt;"), 1u);
  std::vector<double> widths;
  for (size_t at = svg.find("<rect class=\"area f"); at != std::string::npos;
       at = svg.find("<rect class=\"area f", at + 1)) {
    const std::string tag = svg.substr(at, svg.find('>', at) - at);
    const size_t width = tag.find(" width=\"") + 8;
    if (tag.find("height=\"15\"") != std::string::npos) widths.push_back(std::stod(tag.substr(width)));
  }
  ASSERT_EQ(widths.size(), 3u);
  EXPECT_NEAR(widths[1] / widths[0], 3, 0.01);
  EXPECT_NEAR(widths[2] / widths[0], 2, 0.01);
  EXPECT_EQ(count(bars_svg({}), "no data"), 1u);
}

TEST(Plot, Roofline) {
  Roofline roof{"roofline", 100e9, 10e9, {{"matmul", 50, 60e9, 0.7}, {"gelu", 0.5, 4e9, 0.2}, {"copy", 0, 0, 0.1}}};
  const std::string svg = roofline_svg(roof);
  expect_picture(svg);
  EXPECT_EQ(count(svg, "<circle"), 2u);
  EXPECT_EQ(count(svg, ">matmul</text>"), 1u);
  EXPECT_EQ(count(svg, ">gelu</text>"), 1u);
  EXPECT_EQ(count(svg, "no FLOPs: copy 10 %"), 1u);
  EXPECT_EQ(count(svg, ">100 GFLOP/s</text>"), 1u);
  EXPECT_EQ(count(roofline_svg({}), "no data"), 1u);
  roof.points.push_back({"odd", kNan, kInf, kNan});
  roof.points.push_back({"<b>", 1e9, 1e-3, 5});
  expect_picture(roofline_svg(roof));
  for (int i = 0; i < 40; ++i) roof.points.push_back({fmt::format("op {}", i), 3.0, 5e9, 0.01});
  expect_picture(roofline_svg(roof));
  EXPECT_LT(count(roofline_svg(roof), "text-anchor=\"start\">op "),
            40u);  // labels that would lie on each other are left out
}

}  // namespace
}  // namespace tally
