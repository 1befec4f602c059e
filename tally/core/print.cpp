#include "tally/core/print.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "tally/base/error.h"

namespace tally {

namespace {

// The numbers that are printed, in order: of an axis that is cut, the first and last `edge`.
struct Shown {
  std::vector<double> real;     // of floats
  std::vector<int64_t> whole;   // of integers and bool
  std::vector<int64_t> counts;  // by axis
};

void read(const Tensor& x, Shown& to) {
  if (is_floating(x.dtype())) {
    const std::vector<double> v = x.to_vector();
    to.real.insert(to.real.end(), v.begin(), v.end());
  } else {
    const std::vector<int64_t> v = x.to_vector<int64_t>();
    to.whole.insert(to.whole.end(), v.begin(), v.end());
  }
}

// x with axes [0, axis) of size 1 already chosen; the ends of every cut axis from `axis` on.
void read_ends(const Tensor& x, int axis, int64_t edge, Shown& to) {
  if (axis == x.dim()) return read(x, to);
  const int64_t n = x.sizes()[axis];
  const bool cut = n > 2 * edge;
  const bool whole_rows = axis == x.dim() - 1;
  Dims size = x.sizes();
  const auto part = [&](int64_t from, int64_t count) {
    size[axis] = count;
    const Tensor p = x.alias(size, x.strides(), x.storage_offset() + from * x.strides()[axis]);
    whole_rows ? read(p, to) : read_ends(p, axis + 1, edge, to);
  };
  if (whole_rows) {
    part(0, cut ? edge : n);
    if (cut && edge > 0) part(n - edge, edge);
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    if (!cut || i < edge || i >= n - edge) part(i, 1);
}

// One format for all numbers.
class Format {
 public:
  Format(const Shown& shown, DType dtype, int precision)
      : shown_(shown), bools_(dtype == DType::kBool), precision_(precision) {
    if (!is_floating(dtype)) {
      for (size_t i = 0; i < shown.whole.size(); ++i) width_ = std::max(width_, text(i).size());
      return;
    }
    double least = INFINITY, most = 0;
    for (const double v : shown.real) {
      if (!std::isfinite(v) || v == 0) continue;
      least = std::min(least, std::abs(v)), most = std::max(most, std::abs(v));
      whole_ = whole_ && v == std::ceil(v);
    }
    if (most == 0) return;
    scientific_ = most / least > 1000 || most > 1e8 || least < 1e-4;
    for (size_t i = 0; i < shown.real.size(); ++i)
      if (std::isfinite(shown.real[i]) && shown.real[i] != 0) width_ = std::max(width_, text(i).size());
  }
  size_t width() const { return width_; }
  std::string padded(size_t i) const {
    std::string s = text(i);
    if (s.size() < width_) s.insert(0, width_ - s.size(), ' ');
    return s;
  }

 private:
  std::string text(size_t i) const {
    if (bools_) return shown_.whole[i] != 0 ? "True" : "False";
    if (shown_.real.empty()) return std::to_string(shown_.whole[i]);
    const double v = std::isnan(shown_.real[i]) ? NAN : shown_.real[i];  // no -nan
    if (scientific_) return fmt::format("{:.{}e}", v, precision_);
    if (!whole_) return fmt::format("{:.{}f}", v, precision_);
    return fmt::format("{:.0f}{}", v, std::isfinite(v) ? "." : "");
  }
  const Shown& shown_;
  bool bools_, whole_ = true, scientific_ = false;
  int precision_;
  size_t width_ = 1;
};

class Printer {
 public:
  Printer(const Tensor& x, const PrintOptions& o) : size_(x.sizes()), o_(o), cut_(x.numel() > o.threshold) {
    cut_ ? read_ends(x, 0, o.edgeitems, shown_) : read(x, shown_);
    format_ = std::make_unique<Format>(shown_, x.dtype(), o.precision);
  }
  std::string print(size_t indent) { return size_.rank == 0 ? format_->padded(0) : axis(0, indent); }

 private:
  std::string axis(int i, size_t indent) {
    const bool cut = cut_ && size_[i] > 2 * o_.edgeitems, last = i == size_.rank - 1;
    const int64_t items = cut ? 2 * o_.edgeitems : size_[i];
    const size_t width = format_->width() + 2, room = static_cast<size_t>(o_.linewidth);
    const size_t a_line = std::max<size_t>(1, (room > indent ? room - indent : 0) / width);
    const std::string line = "\n" + std::string(indent + 1, ' ');
    const std::string between = last ? ", " : "," + std::string(static_cast<size_t>(size_.rank - i - 2), '\n') + line;
    std::string s = "[";
    size_t on_line = 0;
    const auto put = [&](const std::string& item) {
      if (s.size() > 1) s += last && on_line % a_line == 0 ? "," + line : between;
      s += item;
      ++on_line;
    };
    for (int64_t k = 0; k < items; ++k) {
      if (cut && k == o_.edgeitems) put(last ? " ..." : "...");
      put(last ? format_->padded(next_++) : axis(i + 1, indent + 1));
    }
    if (cut && items == 0) put("...");
    return s + "]";
  }
  Dims size_;
  PrintOptions o_;
  bool cut_;
  Shown shown_;
  std::unique_ptr<Format> format_;
  size_t next_ = 0;
};

}  // namespace

std::string str(const Tensor& x, const PrintOptions& options) {
  if (!x.defined()) return "tensor(undefined)";
  std::string s = "tensor(";
  const size_t indent = s.size();
  const bool meta = x.device().kind == DeviceKind::kMeta, empty = x.numel() == 0;
  std::vector<std::string> more;
  if (x.device().kind != DeviceKind::kCpu) more.push_back("device='" + options.device_name(x.device()) + "'");
  if (meta || (empty && x.dim() != 1)) more.push_back("size=" + str(x.sizes()));
  const bool usual =
      x.dtype() == DType::kF32 || (!meta && !empty && (x.dtype() == DType::kI64 || x.dtype() == DType::kBool));
  if (!usual) more.push_back("dtype=" + options.dtype_name(x.dtype()));
  if (x.requires_grad()) more.push_back("requires_grad=True");
  s += meta ? "..." : empty ? "[]" : Printer(x, options).print(indent);
  const size_t line = s.rfind('\n');
  size_t length = s.size() - (line == std::string::npos ? 0 : line + 1) + 2;
  for (const std::string& suffix : more) {
    if (length + suffix.size() + 2 > static_cast<size_t>(options.linewidth)) {
      s += ",\n" + std::string(indent, ' ') + suffix;
      length = indent + suffix.size();
    } else {
      s += ", " + suffix;
      length += suffix.size() + 2;
    }
  }
  return s + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << str(x); }

}  // namespace tally
