#include "tally/ops/linear_cross_entropy.h"

#include <algorithm>

#include "tally/base/error.h"
#include "tally/core/tape.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/gather.h"
#include "tally/ops/launch.h"
#include "tally/ops/matmul.h"
#include "tally/ops/operands.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"

namespace tally {

namespace {

constexpr int64_t kChunkBytes = int64_t{512} << 20;
// Chunks are whole blocks of K of the product that sums the weight's gradient over the rows.
constexpr int64_t kRowBlock = MatmulPlan::kBlockK;

int64_t check_shapes(const Tensor& x, const Tensor& weight, const Tensor& targets, int64_t chunk_rows) {
  require_same("linear_cross_entropy", x, weight);
  require_index("linear_cross_entropy", targets);
  if (targets.device() != x.device())
    fail("linear_cross_entropy: devices {} and {} differ", name_of(targets.device()), name_of(x.device()));
  if (weight.dim() != 2 || x.dim() < 1 || x.size(-1) != weight.size(1))
    fail("linear_cross_entropy: input {} does not fit weight {} (out, in)", str(x.sizes()), str(weight.sizes()));
  Dims rows = x.sizes();
  --rows.rank;
  if (rows != targets.sizes())
    fail("linear_cross_entropy: targets of shape {} do not fit an input of shape {}", str(targets.sizes()),
         str(x.sizes()));
  if (chunk_rows < 0 || chunk_rows % kRowBlock != 0)
    fail("linear_cross_entropy: chunks of {} rows are no multiple of {}", chunk_rows, kRowBlock);
  return rows.numel();
}

Tensor part(const Tensor& rows, int64_t begin, int64_t end) { return slice(rows, 0, begin, end); }
Tensor one_matrix(const Tensor& x) { return unsqueeze(x, 0); }
Tensor flipped(const Tensor& x) { return transpose(x, 0, 1); }

// c = a b (+ c), matrices.
void product(const Tensor& c, const Tensor& a, const Tensor& b, bool accumulate) {
  matmul_(one_matrix(c), one_matrix(a), one_matrix(b), accumulate);
}

void binary(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& out) {
  launch(&Kernels::binary,
         BinaryArgs{broadcast_view(a, out.sizes()).raw(), broadcast_view(b, out.sizes()).raw(), out.raw(), op});
}

// As Backward has them, before there is one.
Category category_of_gradient(const Tensor& input) {
  return input.node()->is_leaf() ? Category::kGradient : Category::kActivation;
}
DType gradient_dtype(const Tensor& input) { return gradient_dtype_of(input.dtype(), input.node()->is_leaf()); }

// What the chunks leave behind. Gradients are those of the sum of all losses, undefined where none is needed.
struct Result {
  Tensor loss;    // the mean, of no axes
  Tensor dx, dw;  // of x's shape, in x's gradient's dtype; (V, d), summed in f32 (f64 for f64)
  Tensor valid;   // (1): targets not ignored, at least 1
};

// Rows of dx may lie over those of x: dw takes them first.
void add_gradients(const Result& r, const Tensor& dx, const Tensor& x, const Tensor& weight, const Tensor& dlogits,
                   int64_t begin, int64_t end) {
  const Tensor rows = part(x, begin, end);
  if (r.dw.defined()) product(r.dw, flipped(dlogits), rows, begin > 0);
  if (r.dx.defined()) product(part(dx, begin, end), dlogits, weight, false);
}

Result in_chunks(const Tensor& x, const Tensor& weight, const Tensor& targets, int64_t ignore_index, int64_t chunk) {
  const bool x_needs = needs_grad({x}), weight_needs = needs_grad({weight});
  NoGrad quiet;
  const int64_t classes = weight.size(0), n = targets.numel(), chunks = (n + chunk - 1) / chunk;
  const Tensor ids = flat_index(targets), w = weight.detach();
  if (const int64_t at = first_outside(ids, classes, &ignore_index); at >= 0)
    fail("linear_cross_entropy: target {} at position {} is outside 0..{}", index_value(ids, at), at, classes - 1);
  const DType sums = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const Device device = x.device();
  Result r;
  if (x_needs) {
    const Category category = category_of_gradient(x);
    const DType dtype = gradient_dtype(x);
    const bool over = x.unique_storage() && x.is_contiguous() && x.category() == category && x.dtype() == dtype;
    r.dx = over ? x.detach() : Tensor::empty(x.sizes(), dtype, device, category);
  }
  if (weight_needs)
    r.dw = Tensor::empty(weight.sizes(), sums, device,
                         gradient_dtype(weight) == sums ? category_of_gradient(weight) : Category::kActivation);
  const Dims flat(n, x.size(-1));
  const Tensor rows = reshape(x.detach(), flat), dx = r.dx.defined() ? view(r.dx, flat) : Tensor{};
  const auto scratch = [&](const Dims& size, DType dtype) {
    return Tensor::empty(size, dtype, device, Category::kWorkspace);
  };
  const bool gradients = x_needs || weight_needs;
  const Tensor buffer = scratch(Dims(chunk, classes), x.dtype());
  const Tensor stats = gradients ? Tensor{} : scratch(Dims(chunk, 2), sums);
  const Tensor losses = scratch(Dims(n), sums), counts = scratch(Dims(chunks), sums);
  Tensor pair = scratch(Dims(2), sums);  // the number of targets, once all are counted, and 1
  fill_(pair, 1.0);
  const Tensor count = part(pair, 0, 1);
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t begin = i * chunk, end = std::min(n, begin + chunk);
    const Tensor logits = part(buffer, 0, end - begin), ids_of = part(ids, begin, end);
    const Tensor counted = part(counts, i, i + 1), out = part(losses, begin, end);
    product(logits, part(rows, begin, end), flipped(w), false);
    if (!gradients) {
      launch(&Kernels::cross_entropy,
             CrossEntropyArgs{logits.raw(), ids_of.raw(), part(stats, 0, end - begin).raw(), counted.raw(), out.raw(),
                              out.raw(), ignore_index, Reduction::kNone});
      continue;
    }
    PhaseGuard phase("backward");  // where gradients are accounted when they are not in chunks
    launch(&Kernels::cross_entropy_fused,
           CrossEntropyFusedArgs{logits.raw(), ids_of.raw(), counted.raw(), out.raw(), logits.raw(), ignore_index});
    add_gradients(r, dx, rows, w, logits, begin, end);
  }
  const Tensor total = scratch(Dims(1), sums);
  reduce_(ReduceOp::kSum, losses, total);
  reduce_(ReduceOp::kSum, counts, count);
  r.loss = Tensor::empty(Dims(), sums, device);
  binary(BinaryOp::kDiv, total, count, r.loss.alias(Dims(1), Dims(1), 0));
  if (gradients) {
    r.valid = Tensor::empty(Dims(1), sums, device);
    reduce_(ReduceOp::kMax, pair, r.valid);
  }
  return r;
}

// Input i's gradient: `whole` times `scale`.
void add_scaled(Backward& b, int i, const Tensor& whole, const Tensor& scale) {
  if (!b.needs(i)) return;
  bool accumulate = false;
  const bool in_place = whole.dtype() == b.gradient_dtype(i) && whole.category() == b.category(i);
  const Tensor into = in_place ? whole : b.target(i, accumulate);
  binary(BinaryOp::kMul, whole, scale, accumulate ? whole : into);
  if (accumulate) binary(BinaryOp::kAdd, into, whole, into);
  b.add(i, into, accumulate);
}

}  // namespace

int64_t head_chunk_rows(int64_t rows, const Tensor& weight) {
  const int64_t row_bytes = std::max<int64_t>(1, weight.size(0) * weight.element_size());
  const int64_t most = std::max<int64_t>(1, kChunkBytes / row_bytes / kRowBlock) * kRowBlock;
  if (rows <= most || rows * row_bytes <= kChunkBytes) return rows;
  const int64_t chunks = (rows + most - 1) / most, blocks = (rows + kRowBlock - 1) / kRowBlock;
  return (blocks + chunks - 1) / chunks * kRowBlock;
}

Tensor linear_cross_entropy(Tensor x, const Tensor& weight, const Tensor& targets, int64_t ignore_index,
                            int64_t chunk_rows) {
  const int64_t n = check_shapes(x, weight, targets, chunk_rows);
  const int64_t chunk = chunk_rows > 0 ? chunk_rows : head_chunk_rows(n, weight);
  // Cards have no fused kernel for f16: the logits are in memory as a whole.
  if (n <= chunk || widens_f16(x)) return cross_entropy(linear(x, weight), targets, ignore_index);
  const Result r = in_chunks(x, weight, targets, ignore_index, chunk);
  Tensor loss = r.loss;
  record(loss, {x, weight}, {r.dx, r.dw, r.valid}, [](Backward& b) {
    const Tensor scale = Tensor::empty(Dims(1), b.grad().dtype(), b.grad().device(), Category::kWorkspace);
    binary(BinaryOp::kDiv, b.grad(), b.saved(2), scale);
    add_scaled(b, 1, b.take_saved(1), scale);
    add_scaled(b, 0, b.take_saved(0), scale);
  });
  return loss;
}

}  // namespace tally
