// The cases of `tally bench ops`: every kernel of the table at sizes that training has; here those of models.
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "tally/base/error.h"
#include "tally/ops/attention.h"
#include "tally/ops/cache.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/dropout.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/embedding.h"
#include "tally/ops/gather.h"
#include "tally/ops/launch.h"
#include "tally/ops/matmul.h"
#include "tally/ops/norm.h"
#include "tally/ops/optim_step.h"
#include "tally/ops/reduce.h"
#include "tally/ops/rope.h"
#include "tally/ops/softmax.h"
#include "tally/ops/view.h"
#include "tally/optim/optimizer.h"
#include "tally/train/bench_cases.h"

namespace tally {

Tensor bench_leaf(const Dims& size, uint64_t seed) {
  return bench_values(size, seed, Category::kParameter).set_requires_grad();
}

std::string bench_shape(const Dims& size) {
  std::string text;
  for (int i = 0; i < size.rank; ++i) text += (i > 0 ? " x " : "") + std::to_string(size[i]);
  return text;
}

OpCase function_case(const char* op, const char* size, const std::vector<Dims>& shapes, const Forward& f,
                     bool gradient) {
  const auto make = [=] {
    OpCall call;
    Values values;
    for (size_t i = 0; i < shapes.size(); ++i) {
      values.push_back(gradient ? bench_leaf(shapes[i], i + 1) : bench_values(shapes[i], i + 1));
      call.inputs.emplace_back(std::string(1, static_cast<char>('a' + i)), values.back());
    }
    call.forward = [=] { return f(values); };
    call.gradient = gradient;
    return call;
  };
  return {op, bench_shape(shapes[0]), size, make};
}

OpCase indexed_case(const char* op, const char* size, const std::string& shape, const Dims& table, const Dims& ids,
                    int64_t limit, const std::function<Tensor(const Tensor& table, const Tensor& ids)>& f) {
  const auto make = [=] {
    const Tensor x = bench_leaf(table, 1), index = bench_ids(ids, limit, 2);
    return OpCall{{{"a", x}, {"ids", index}}, [=] { return f(x, index); }, true};
  };
  return {op, shape, size, make};
}

namespace {

constexpr int64_t kWidth = kBenchWidth, kVocabulary = 32000;

// Elements of a tensor that no cache holds: as large as the last one, within reason.
int64_t memory_elements() {
  if (bench_place().device.kind == DeviceKind::kCuda) return int64_t{1} << 26;  // the second cache has 50 MB
  const int64_t cache = std::clamp<int64_t>(::sysconf(_SC_LEVEL3_CACHE_SIZE), int64_t{64} << 20, int64_t{512} << 20);
  const int64_t machine = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  return std::max<int64_t>(kWidth * 64, std::min(cache, machine / 32) / 4 / kWidth * kWidth);
}

OpCase adamw_case(const char* size, int64_t rows) {
  const auto make = [=] {
    OpCall call;
    Values t;
    for (const char* name : {"param", "grad", "m", "v"}) {
      t.push_back(bench_values(Dims(rows, kWidth), t.size() + 1, Category::kOptimizer));
      call.inputs.emplace_back(name, t.back());
    }
    for (size_t i : {2, 3}) t[i] = to(t[i], DType::kF32);  // moments are, whatever the parameter is
    t[3] = square(t[3]);                                   // second moments are not negative
    call.inputs[2].second = t[2];
    call.inputs[3].second = t[3];
    const AdamwScalars s{1e-3, 0.9, 0.95, 1e-8, 0.1, 1 - 0.9, 1 - 0.95, 1};
    call.forward = [=] {
      adamw_step(t[0], t[1], t[2], t[3], s);
      return t[0];
    };
    call.gradient = false;
    return call;
  };
  return {"adamw", fmt::format("{} x {}", rows, kWidth), size, make};
}

// A whole step of AdamW on f32 parameters as training takes it: the norm of the gradients, then the clipped update.
OpCase clipped_adamw_case(const char* size, int64_t n) {
  const auto make = [=] {
    OpCall call;
    Values t;
    for (const char* name : {"param", "grad", "m", "v"}) {
      t.push_back(bench_values(Dims(n), t.size() + 1, Category::kOptimizer, DType::kF32));
      call.inputs.emplace_back(name, t.back());
    }
    launch(&Kernels::binary, BinaryArgs{t[3].raw(), t[3].raw(), t[3].raw(), BinaryOp::kMul});  // v is not negative
    call.forward = [=] {
      const double scale = clip_scale(std::sqrt(sum_squares(t[1])), 1.0);
      adamw_step(t[0], t[1], t[2], t[3], {1e-3, 0.9, 0.95, 1e-8, 0.1, 1 - 0.9, 1 - 0.95, scale});
      return t[0];
    };
    call.gradient = false;
    return call;
  };
  return {"clipped adamw", fmt::format("{}", n), size, make};
}

void add_rows(std::vector<OpCase>& all, const char* size, int64_t elements) {
  const int64_t n = elements / kWidth;
  const Dims x(n, kWidth), w(kWidth);
  const auto add_function = [&](const char* op, const std::vector<Dims>& shapes, const Forward& f,
                                bool gradient = true) { all.push_back(function_case(op, size, shapes, f, gradient)); };
  add_function("rms_norm", {x, w}, [](const Values& v) { return rms_norm(v[0], v[1]); });
  add_function("layer_norm", {x, w, w}, [](const Values& v) { return layer_norm(v[0], v[1], v[2]); });
  // Named so that --filter layer_norm takes that alone; the gradient that is timed is of y alone.
  add_function("residual_rms", {x, x, w}, [](const Values& v) { return residual_rms_norm(v[0], v[1], v[2]).y; });
  add_function("residual_layer", {x, x, w, w},
               [](const Values& v) { return residual_layer_norm(v[0], v[1], v[2], v[3]).y; });
  add_function("softmax", {x}, [](const Values& v) { return softmax(v[0]); });
  add_function("swiglu", {x, x}, [](const Values& v) { return swiglu(v[0], v[1]); });
  add_function("gelu", {x}, [](const Values& v) { return gelu(v[0]); });
  add_function("gelu_tanh", {x}, [](const Values& v) { return gelu_tanh(v[0]); });
  add_function("silu", {x}, [](const Values& v) { return silu(v[0]); });
  add_function("add", {x, x}, [](const Values& v) { return add(v[0], v[1]); });
  add_function("mul", {x, x}, [](const Values& v) { return mul(v[0], v[1]); });
  add_function("dropout", {x}, [](const Values& v) { return dropout(v[0], 0.1f, 1, 2); });
  add_function("sum of rows", {x}, [](const Values& v) { return sum(v[0], Dims(1)); });
  add_function("sum of columns", {x}, [](const Values& v) { return sum(v[0], Dims(0)); });
  add_function("max", {x}, [](const Values& v) { return max(v[0], Dims(1)); });
  add_function(
      "copy", {x, x}, [](const Values& v) { return copy_(v[1], v[0]), v[1]; }, false);
  add_function(
      "fill", {x},
      [](const Values& v) {
        Tensor t = v[0];
        return fill_(t, 0.5), t;
      },
      false);
  add_function(
      "sum_squares", {x},
      [](const Values& v) {
        Tensor loss = Tensor::empty({1}, DType::kF32, v[0].device(), Category::kWorkspace);
        const Tensor totals = Tensor::empty({3}, DType::kF64, v[0].device(), Category::kWorkspace);
        fill_(loss, 0.0);
        step_totals(squares_of({v[0]}), loss, 1, totals);
        return v[0];
      },
      false);
  all.push_back(adamw_case(size, n));
  all.push_back(indexed_case("gather", size, str(x), x, Dims(n), n,
                             [](const Tensor& t, const Tensor& ids) { return index_select(t, 0, ids); }));
  const int64_t rows = std::max<int64_t>(1, elements / kVocabulary), tokens = elements / 512;
  all.push_back(indexed_case("cross_entropy", size, fmt::format("{} x {}", rows, kVocabulary), Dims(rows, kVocabulary),
                             Dims(rows), kVocabulary,
                             [](const Tensor& t, const Tensor& ids) { return cross_entropy(t, ids); }));
  all.push_back(indexed_case("embedding", size, fmt::format("{} of {} x 512", tokens, kVocabulary),
                             Dims(kVocabulary, 512), Dims(1, tokens), kVocabulary,
                             [](const Tensor& t, const Tensor& ids) { return embedding(ids, t); }));
  add_function("rope", {Dims(1, tokens, 8, 64)}, [table = Tensor()](const Values& v) mutable {
    if (!table.defined()) table = rope_table(v[0].size(1), 64, 10000, 0, v[0].device());
    return rope(v[0], table, 0, RopeStyle::kHalfSplit);
  });
  add_function(
      "cache_write", {Dims(1, tokens, 8, 64), Dims(1, tokens, 8, 64)},
      [](const Values& v) {
        const Tensor position = Tensor::empty({1}, DType::kI32, v[0].device(), Category::kCache);
        cache_write(v[0], v[0], v[1], v[1], 0);
        cache_advance(position, 1);
        return v[0];
      },
      false);
  all.push_back({"rope_table", fmt::format("{} x 64", tokens), size, [=] {
                   return OpCall{{}, [=] { return rope_table(tokens, 64, 10000, 0, bench_place().device); }, false};
                 }});
}

OpCase packed_product(int64_t m, int64_t n) {
  const auto make = [=] {
    const Tensor x = bench_values(Dims(m, n), 1), w = bench_values(Dims(n, n), 2), packed = pack_weight(w);
    return OpCall{{{"a", x}, {"b", w}}, [=] { return linear_packed(x, packed, n); }, false};
  };
  return {"linear_packed", fmt::format("{0} x {1} x {1}", m, n), "product", make};
}

void add_products(std::vector<OpCase>& all) {
  const Forward product = [](const Values& v) { return linear(v[0], v[1]); };
  for (const int64_t n : {512, 1024, 2048}) {
    all.push_back(function_case("linear", "product", {Dims(n, n), Dims(n, n)}, product, n < 2048));
    all.back().shape = fmt::format("{0} x {0} x {0}", n);
  }
  for (const int64_t n : {1024, 2048})
    for (const int64_t m : {1, 2, 4, 8, 16, 32}) {
      all.push_back(function_case("linear", "product", {Dims(m, n), Dims(n, n)}, product, false));
      all.back().shape = fmt::format("{0} x {1} x {1}", m, n);
      if (bench_place().device.kind == DeviceKind::kCpu) all.push_back(packed_product(m, n));
    }
  const Forward causal = [](const Values& v) { return attention(v[0], v[1], v[2], true); };
  const Dims many(1, 1024, 12, 64), one(1, 1, 12, 64);
  all.push_back(function_case("attention", "product", {many, many, many}, causal));
  all.push_back(function_case("attention", "product", {one, many, many}, causal, false));
}

// Loss and gradient over the logits, as training takes them a chunk of rows at a time. From the second call on the
// logits are the gradient of the call before, which takes the same time.
OpCase fused_cross_entropy_case(const char* size, int64_t rows, int64_t classes) {
  const auto make = [=] {
    const Tensor x = bench_values(Dims(rows, classes), 1), ids = bench_ids(Dims(rows), classes, 2);
    const Tensor losses = Tensor::empty(Dims(rows), DType::kF32, x.device()),
                 count = Tensor::empty(Dims(1), DType::kF32, x.device());
    const auto forward = [=] {
      launch(&Kernels::cross_entropy_fused,
             CrossEntropyFusedArgs{x.raw(), ids.raw(), count.raw(), losses.raw(), x.raw(), -100});
      return losses;
    };
    return OpCall{{{"a", x}, {"ids", ids}}, forward, false};
  };
  return {"cross_entropy fused", fmt::format("{} x {}", rows, classes), size, make};
}

// The gradient of a bias: the f32 sum of many rows.
OpCase bias_gradient_case(const char* size, int64_t rows, int64_t columns) {
  const auto make = [=] {
    const Tensor x = bench_values(Dims(rows, columns), 1),
                 out = Tensor::empty(Dims(1, columns), DType::kF32, x.device(), Category::kGradient);
    return OpCall{{{"a", x}}, [=] { return reduce_(ReduceOp::kSum, x, out), out; }, false};
  };
  return {"bias gradient", fmt::format("{} x {}", rows, columns), size, make};
}

// The loss of 32 sequences of 1,024 tokens, gradients of GPT-2's biases, the optimizer of GPT-2 XL, rotations that the
// second cache cannot hold.
void add_large(std::vector<OpCase>& all, const char* size) {
  const int64_t rows = 32768, classes = 50304;
  all.push_back(indexed_case("cross_entropy", size, fmt::format("{} x {}", rows, classes), Dims(rows, classes),
                             Dims(rows), classes,
                             [](const Tensor& t, const Tensor& ids) { return cross_entropy(t, ids); }));
  all.push_back(fused_cross_entropy_case(size, rows, classes));
  for (const int64_t columns : {768, 3072}) all.push_back(bias_gradient_case(size, 65536, columns));
  all.push_back(clipped_adamw_case(size, 1'560'000'000));
  all.push_back(function_case("rope", size, {Dims(32, 4096, 16, 128)}, [table = Tensor()](const Values& v) mutable {
    if (!table.defined()) table = rope_table(v[0].size(1), 128, 10000, 0, v[0].device());
    return rope(v[0], table, 0, RopeStyle::kHalfSplit);
  }));
}

}  // namespace

std::vector<OpCase> op_cases() {
  std::vector<OpCase> all;
  for (const auto& [size, elements] : {std::pair(kBenchSizes[0], 64 * kWidth), {kBenchSizes[1], memory_elements()}}) {
    add_rows(all, size, elements);
    add_tensor_cases(all, size, elements);
  }
  all.push_back(fused_cross_entropy_case(kBenchSizes[0], 8, kVocabulary));
  add_products(all);
  add_integer_products(all);
  if (bench_place().device.kind == DeviceKind::kCuda) add_large(all, kBenchSizes[3]);
  return all;
}

}  // namespace tally
