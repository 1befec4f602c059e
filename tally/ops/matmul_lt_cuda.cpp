// Products by cuBLASLt: host code only. Algorithms whose results could differ between two runs (sums by atomics) are
// not taken. f32 products are f32 throughout unless MatmulArgs::tf32 says otherwise. A product is described once and
// kept with its algorithm, which matmul_search_cuda.cpp chooses.
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "tally/base/error.h"
#include "tally/core/device.h"
#include "tally/ops/matmul_cuda.h"
#include "tally/ops/matmul_lt_cuda.h"

namespace tally::cuda {

void check_lt(const char* call, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) fail_run("{}: {}", call, cublasLtGetStatusString(status));
}

cublasStatus_t run_lt(const LtLibrary& library, const LtProduct& product, const MatmulArgs& args,
                      const cublasLtMatmulAlgo_t& algorithm, void* out) {
  const float one = 1.0f, beta = args.accumulate ? 1.0f : 0.0f;
  return cublasLtMatmul(library.handle, product.what, &one, args.b.data, product.first, args.a.data, product.second,
                        &beta, args.c.data, product.result, out, product.result, &algorithm, library.workspace,
                        static_cast<size_t>(kLtWorkspace),
                        static_cast<cudaStream_t>(detail::device_stream(args.c.device.index)));
}

namespace {

LtLibrary& library_of(Device d) {
  static std::array<LtLibrary, 64> all;
  LtLibrary& l = all[static_cast<size_t>(d.index)];
  if (l.handle == nullptr) {
    l.device = d.index;
    l.card = device_info(d).name;
    detail::device_stream(d.index);  // makes the device current
    check_lt("cublasLtCreate", cublasLtCreate(&l.handle));
    l.workspace = detail::device_take(d.index, kLtWorkspace);
  }
  return l;
}

// A matrix as cuBLASLt sees it, column-major: rows x columns as stored, `transposed` when the product takes it so.
struct Stored {
  int64_t rows, columns, pitch, batch_stride;
  bool transposed;
};
// `v` (batch, outer, inner) as the operand `inner` x `outer` of the transposed product. False: no unit stride.
bool stored_of(const View& v, Stored& s) {
  const int64_t outer = v.size.v[1], inner = v.size.v[2];
  int64_t by_outer = v.stride.v[1], by_inner = v.stride.v[2];
  // The stride of an axis of one element means nothing: a fitting one is taken.
  if (inner == 1) by_inner = 1;
  if (outer == 1 && by_inner == 1) by_outer = inner;
  if (outer == 1 && by_inner != 1) by_outer = 1;
  s.batch_stride = v.size.v[0] == 1 ? 0 : v.stride.v[0];
  if (by_inner == 1 && by_outer >= inner) {
    s.rows = inner, s.columns = outer, s.pitch = by_outer, s.transposed = false;
    return true;
  }
  if (by_outer == 1 && by_inner >= outer) {
    s.rows = outer, s.columns = inner, s.pitch = by_inner, s.transposed = true;
    return true;
  }
  return false;
}

cudaDataType_t type_of(DType t) { return t == DType::kF32 ? CUDA_R_32F : t == DType::kF16 ? CUDA_R_16F : CUDA_R_16BF; }

uint32_t alignment_of(const View& v, const Stored& s) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(v.data) | static_cast<uint64_t>(s.pitch * item_size(v.dtype)) |
                        static_cast<uint64_t>(s.batch_stride * item_size(v.dtype)) | 256;
  return static_cast<uint32_t>(bits & -bits);
}
int64_t alignment_within_16(const View& v) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(v.data) & 15); }

cublasLtMatrixLayout_t layout_of(const View& v, const Stored& s, int64_t batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_lt("cublasLtMatrixLayoutCreate",
           cublasLtMatrixLayoutCreate(&layout, type_of(v.dtype), static_cast<uint64_t>(s.rows),
                                      static_cast<uint64_t>(s.columns), s.pitch));
  const auto count = static_cast<int32_t>(batch);
  cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
  cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &s.batch_stride,
                                   sizeof s.batch_stride);
  return layout;
}

cublasLtEpilogue_t epilogue_of(const MatmulArgs& args) {
  if (args.what_aux == MatmulAux::kGelu)
    return args.has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  if (args.what_aux == MatmulAux::kGeluGradient) return CUBLASLT_EPILOGUE_DGELU;
  return args.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

void set_pointers(const LtProduct& x, const MatmulArgs& args) {
  if (args.has_bias)
    cublasLtMatmulDescSetAttribute(x.what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &args.bias.data, sizeof(void*));
  if (args.what_aux != MatmulAux::kNone)
    cublasLtMatmulDescSetAttribute(x.what, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &args.aux.data, sizeof(void*));
}

// A new description of the product of `b` (first to cuBLASLt) and `a`.
LtProduct described(const MatmulArgs& args, const Stored& a, const Stored& b, const Stored& c) {
  LtProduct x;
  const cublasComputeType_t compute = args.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check_lt("cublasLtMatmulDescCreate", cublasLtMatmulDescCreate(&x.what, compute, CUDA_R_32F));
  const cublasOperation_t flip_b = b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t flip_a = a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasLtMatmulDescSetAttribute(x.what, CUBLASLT_MATMUL_DESC_TRANSA, &flip_b, sizeof flip_b);
  cublasLtMatmulDescSetAttribute(x.what, CUBLASLT_MATMUL_DESC_TRANSB, &flip_a, sizeof flip_a);
  const cublasLtEpilogue_t epilogue = epilogue_of(args);
  cublasLtMatmulDescSetAttribute(x.what, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (args.has_bias) {
    const cudaDataType_t type = type_of(args.bias.dtype);
    cublasLtMatmulDescSetAttribute(x.what, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
  }
  if (args.what_aux != MatmulAux::kNone) {
    const int64_t pitch = args.aux.stride.v[1];
    const cudaDataType_t type = type_of(args.aux.dtype);
    cublasLtMatmulDescSetAttribute(x.what, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &pitch, sizeof pitch);
    cublasLtMatmulDescSetAttribute(x.what, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &type, sizeof type);
  }
  const int64_t batch = args.c.size.v[0];
  x.first = layout_of(args.b, b, batch), x.second = layout_of(args.a, a, batch), x.result = layout_of(args.c, c, batch);
  x.alignment[0] = alignment_of(args.b, b), x.alignment[1] = alignment_of(args.a, a);
  x.alignment[2] = alignment_of(args.c, c);
  return x;
}

bool describable(const MatmulArgs& args) {
  const View &a = args.a, &b = args.b, &c = args.c;
  if (c.dtype == DType::kF64 || a.size.v[2] == 0 || a.dtype != b.dtype) return false;
  if (a.dtype == DType::kF32 && c.dtype != DType::kF32) return false;
  if (args.has_bias && (args.bias.dtype != c.dtype || (args.bias.stride.v[0] != 1 && c.size.v[2] > 1))) return false;
  if (args.what_aux == MatmulAux::kNone) return true;
  const View& aux = args.aux;
  return c.size.v[0] == 1 && c.dtype == DType::kBF16 && aux.dtype == DType::kBF16 && !args.accumulate &&
         aux.stride.v[2] == 1 && aux.stride.v[1] % 8 == 0 && aux.stride.v[1] >= c.size.v[2];
}

LtKey key_of(const MatmulArgs& args, const Stored& a, const Stored& b, const Stored& c) {
  const bool aux = args.what_aux != MatmulAux::kNone;
  return {args.c.size.v[0],
          args.c.size.v[1],
          args.c.size.v[2],
          args.a.size.v[2],
          a.pitch,
          b.pitch,
          c.pitch,
          a.batch_stride,
          b.batch_stride,
          c.batch_stride,
          a.transposed * 2 + b.transposed,
          static_cast<int64_t>(args.a.dtype),
          static_cast<int64_t>(args.c.dtype),
          args.has_bias,
          args.tf32,
          alignment_of(args.a, a),
          alignment_of(args.b, b),
          alignment_of(args.c, c),
          args.has_bias ? alignment_within_16(args.bias) : 0,
          static_cast<int64_t>(args.what_aux),
          aux ? args.aux.stride.v[1] : 0,
          aux ? alignment_within_16(args.aux) : 0};
}

}  // namespace

bool multiply_lt(const MatmulArgs& args) {
  Stored a{}, b{}, c{};
  if (!describable(args) || !stored_of(args.a, a) || !stored_of(args.b, b) || !stored_of(args.c, c) || c.transposed)
    return false;
  if (args.c.size.v[0] > 1 && c.batch_stride == 0) return false;
  static std::mutex mutex;
  static std::map<std::pair<int, LtKey>, LtProduct> products;
  const std::lock_guard lock(mutex);
  const LtLibrary& library = library_of(args.c.device);
  const LtKey key = key_of(args, a, b, c);
  auto it = products.find({library.device, key});
  if (it == products.end()) {
    LtProduct product = described(args, a, b, c);
    set_pointers(product, args);
    choose_lt(library, args, key, product);
    it = products.emplace(std::pair(library.device, key), product).first;
  }
  const LtProduct& x = it->second;
  if (!x.found) return false;
  set_pointers(x, args);
  check_lt("cublasLtMatmul", run_lt(library, x, args, x.algorithm, args.c.data));
  return true;
}

}  // namespace tally::cuda
