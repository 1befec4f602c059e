// The matrix product on CUDA: cuBLASLt for products whose matrices it can describe (one unit stride each, f32 or bf16),
// a plain tiled kernel for all others. Row-major C is to cuBLASLt the column-major C^T = B^T A^T. Algorithms whose
// results could differ between two runs (sums by atomics) are not taken. f32 products are f32 throughout, not tf32.
// GELU and its gradient ride in the product in bf16, where cuBLASLt's approximation of tanh is below the rounding; else
// a kernel follows.
#include <cublasLt.h>

#include <array>
#include <map>
#include <mutex>

#include "tally/ops/device.cuh"
#include "tally/ops/elementwise_kernels.h"
#include "tally/ops/matmul_kernels.h"

namespace tally {
namespace detail {
void* device_take(int index, int64_t bytes);
}

namespace cuda {

bool multiply_rows(const MatmulArgs& args);  // matmul_rows_cuda.cu

namespace {

// ---- any strides and dtypes: a block computes a tile of 32 x 32, a thread four elements of a column

constexpr int kTile = 32, kTileRows = 8;

struct Any {
  const char* data;
  DType dtype;
  int64_t row, column;
  template <class N>
  __device__ N load(int64_t i, int64_t j) const {
    const int64_t at = i * row + j * column;
    if (dtype == DType::kF32) return static_cast<N>(reinterpret_cast<const float*>(data)[at]);
    if (dtype == DType::kBF16) return static_cast<N>(to_float(reinterpret_cast<const bf16*>(data)[at]));
    return static_cast<N>(reinterpret_cast<const double*>(data)[at]);
  }
  template <class N>
  __device__ void store(int64_t i, int64_t j, N x) const {
    char* const to = const_cast<char*>(data);
    const int64_t at = i * row + j * column;
    if (dtype == DType::kF32) reinterpret_cast<float*>(to)[at] = static_cast<float>(x);
    if (dtype == DType::kBF16) store_one(reinterpret_cast<bf16*>(to) + at, static_cast<float>(x));
    if (dtype == DType::kF64) reinterpret_cast<double*>(to)[at] = x;
  }
};

struct Plain {
  Any a, b, c, bias;
  int64_t a_batch, b_batch, c_batch;  // bytes
  int64_t m, n, k;
  bool accumulate, has_bias;
};

template <class N>
__global__ void plain_product(Plain p) {
  __shared__ N a[kTile][kTile + 1], b[kTile][kTile + 1];
  p.a.data += blockIdx.z * p.a_batch;
  p.b.data += blockIdx.z * p.b_batch;
  p.c.data += blockIdx.z * p.c_batch;
  const int x = threadIdx.x, y = threadIdx.y;
  const int64_t column = int64_t{blockIdx.y} * kTile + x;
  for (int64_t row = int64_t{blockIdx.x} * kTile; row < p.m; row += int64_t{gridDim.x} * kTile) {
    N sum[kTile / kTileRows] = {};
    for (int64_t k = 0; k < p.k; k += kTile) {
      for (int i = y; i < kTile; i += kTileRows) {
        a[i][x] = row + i < p.m && k + x < p.k ? p.a.load<N>(row + i, k + x) : N{};
        b[i][x] = k + i < p.k && column < p.n ? p.b.load<N>(k + i, column) : N{};
      }
      __syncthreads();
      for (int l = 0; l < kTile; ++l)
        for (int i = 0; i < kTile / kTileRows; ++i) sum[i] += a[y + i * kTileRows][l] * b[l][x];
      __syncthreads();
    }
    for (int i = 0; i < kTile / kTileRows; ++i) {
      const int64_t r = row + y + i * kTileRows;
      if (r >= p.m || column >= p.n) continue;
      N out = sum[i];
      if (p.accumulate) out += p.c.load<N>(r, column);
      if (p.has_bias) out += p.bias.load<N>(0, column);
      p.c.store<N>(r, column, out);
    }
  }
}

Any matrix_of(const View& v) { return {v.ptr<char>(), v.dtype, v.stride.v[1], v.stride.v[2]}; }

void multiply_plain(const MatmulArgs& args) {
  Plain p{};
  p.a = matrix_of(args.a), p.b = matrix_of(args.b), p.c = matrix_of(args.c);
  if (args.has_bias) p.bias = {args.bias.ptr<char>(), args.bias.dtype, 0, args.bias.stride.v[0]};
  p.a_batch = args.a.stride.v[0] * item_size(args.a.dtype);
  p.b_batch = args.b.stride.v[0] * item_size(args.b.dtype);
  p.c_batch = args.c.stride.v[0] * item_size(args.c.dtype);
  p.m = args.c.size.v[1], p.n = args.c.size.v[2], p.k = args.a.size.v[2];
  p.accumulate = args.accumulate, p.has_bias = args.has_bias;
  const dim3 threads(kTile, kTileRows);
  const int64_t columns = parts(p.n, kTile), batch = args.c.size.v[0];
  // The grid's second and third axes end at 65535: columns and batches are cut.
  for (int64_t z = 0; z < batch; z += 65535)
    for (int64_t j = 0; j < columns; j += 65535) {
      Plain part = p;
      part.a.data += z * p.a_batch, part.b.data += z * p.b_batch, part.c.data += z * p.c_batch;
      part.b.data += j * kTile * p.b.column * item_size(p.b.dtype);
      part.c.data += j * kTile * p.c.column * item_size(p.c.dtype);
      if (p.has_bias) part.bias.data += j * kTile * p.bias.column * item_size(p.bias.dtype);
      part.n = p.n - j * kTile;
      const dim3 grid(blocks_for(p.m, kTile, 4096), static_cast<unsigned>(columns - j < 65535 ? columns - j : 65535),
                      static_cast<unsigned>(batch - z < 65535 ? batch - z : 65535));
      if (p.c.dtype == DType::kF64) {
        plain_product<double><<<grid, threads, 0, stream_of(args.c.device)>>>(part);
      } else {
        plain_product<float><<<grid, threads, 0, stream_of(args.c.device)>>>(part);
      }
    }
  check_launch("matmul");
}

// ---- cuBLASLt

void check_lt(const char* what, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) detail::check_cuda(what, cudaErrorUnknown);
}

constexpr int64_t kWorkspace = int64_t{64} << 20;

struct Library {
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
};
Library& library_of(Device d) {
  static std::array<Library, 64> all;
  Library& l = all[static_cast<size_t>(d.index)];
  if (l.handle == nullptr) {
    stream_of(d);  // makes the device current
    check_lt("cublasLtCreate", cublasLtCreate(&l.handle));
    l.workspace = detail::device_take(d.index, kWorkspace);
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
  s.batch_stride = v.stride.v[0];
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

cudaDataType_t type_of(DType t) { return t == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF; }

uint32_t alignment_of(const View& v, const Stored& s) {
  uint64_t bits = reinterpret_cast<uintptr_t>(v.data) | static_cast<uint64_t>(s.pitch * item_size(v.dtype)) |
                  static_cast<uint64_t>(s.batch_stride * item_size(v.dtype)) | 256;
  return static_cast<uint32_t>(bits & -bits);
}

// Everything that an algorithm is chosen by.
using Key = std::array<int64_t, 22>;
struct Choice {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool found = false;
};

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

void set_pointers(const Choice& x, const MatmulArgs& args) {
  if (args.has_bias)
    cublasLtMatmulDescSetAttribute(x.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &args.bias.data, sizeof(void*));
  if (args.what_aux != MatmulAux::kNone)
    cublasLtMatmulDescSetAttribute(x.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &args.aux.data, sizeof(void*));
}

// A new choice for the product of `b` (first to cuBLASLt) and `a`: descriptors that live as long as the program.
Choice choose(const Library& lib, const MatmulArgs& args, const Stored& a, const Stored& b, const Stored& c) {
  Choice x;
  check_lt("cublasLtMatmulDescCreate", cublasLtMatmulDescCreate(&x.product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t flip_b = b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t flip_a = a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasLtMatmulDescSetAttribute(x.product, CUBLASLT_MATMUL_DESC_TRANSA, &flip_b, sizeof flip_b);
  cublasLtMatmulDescSetAttribute(x.product, CUBLASLT_MATMUL_DESC_TRANSB, &flip_a, sizeof flip_a);
  const cublasLtEpilogue_t epilogue = epilogue_of(args);
  cublasLtMatmulDescSetAttribute(x.product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (args.has_bias) {
    const cudaDataType_t type = type_of(args.bias.dtype);
    cublasLtMatmulDescSetAttribute(x.product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
  }
  if (args.what_aux != MatmulAux::kNone) {
    const int64_t pitch = args.aux.stride.v[1];
    const cudaDataType_t type = type_of(args.aux.dtype);
    cublasLtMatmulDescSetAttribute(x.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &pitch, sizeof pitch);
    cublasLtMatmulDescSetAttribute(x.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &type, sizeof type);
  }
  set_pointers(x, args);
  const int64_t batch = args.c.size.v[0];
  x.a = layout_of(args.b, b, batch), x.b = layout_of(args.a, a, batch), x.c = layout_of(args.c, c, batch);
  cublasLtMatmulPreference_t wish = nullptr;
  check_lt("cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&wish));
  const auto workspace = static_cast<uint64_t>(kWorkspace);
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;  // split sums are joined in order, in f32
  const uint32_t align_a = alignment_of(args.b, b), align_b = alignment_of(args.a, a),
                 align_c = alignment_of(args.c, c);
  cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
  cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align_a, sizeof align_a);
  cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align_b, sizeof align_b);
  cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align_c, sizeof align_c);
  cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align_c, sizeof align_c);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(lib.handle, x.product, x.a, x.b, x.c, x.c, wish, 1, &result, &found);
  cublasLtMatmulPreferenceDestroy(wish);
  x.found = status == CUBLAS_STATUS_SUCCESS && found > 0 && result.state == CUBLAS_STATUS_SUCCESS;
  x.algorithm = result.algo;
  return x;
}

bool multiply_lt(const MatmulArgs& args) {
  const View &a = args.a, &b = args.b, &c = args.c;
  const int64_t k = a.size.v[2];
  if (c.dtype == DType::kF64 || k == 0 || a.dtype != b.dtype || (a.dtype == DType::kF32 && c.dtype != DType::kF32))
    return false;
  if (args.has_bias && (args.bias.dtype != c.dtype || (args.bias.stride.v[0] != 1 && c.size.v[2] > 1))) return false;
  if (args.what_aux != MatmulAux::kNone &&
      (c.size.v[0] != 1 || c.dtype != DType::kBF16 || args.aux.dtype != DType::kBF16 || args.accumulate ||
       args.aux.stride.v[2] != 1 || args.aux.stride.v[1] % 8 != 0 || args.aux.stride.v[1] < c.size.v[2]))
    return false;
  Stored sa{}, sb{}, sc{};
  if (!stored_of(a, sa) || !stored_of(b, sb) || !stored_of(c, sc) || sc.transposed) return false;
  if (c.size.v[0] > 1 && sc.batch_stride == 0) return false;
  if (c.size.v[0] == 1) sa.batch_stride = sb.batch_stride = sc.batch_stride = 0;
  const Library& lib = library_of(c.device);
  const Key key = {
      c.device.index,
      c.size.v[0],
      c.size.v[1],
      c.size.v[2],
      k,
      sa.pitch,
      sb.pitch,
      sc.pitch,
      sa.batch_stride,
      sb.batch_stride,
      sc.batch_stride,
      sa.transposed * 2 + sb.transposed,
      static_cast<int64_t>(a.dtype),
      static_cast<int64_t>(c.dtype),
      args.has_bias,
      alignment_of(a, sa),
      alignment_of(b, sb),
      alignment_of(c, sc),
      args.has_bias ? static_cast<int64_t>(reinterpret_cast<uintptr_t>(args.bias.data) & 15) : 0,
      static_cast<int64_t>(args.what_aux),
      args.what_aux == MatmulAux::kNone ? 0 : args.aux.stride.v[1],
      args.what_aux == MatmulAux::kNone ? 0 : static_cast<int64_t>(reinterpret_cast<uintptr_t>(args.aux.data) & 15)};
  static std::mutex mutex;
  static std::map<Key, Choice> choices;
  const std::lock_guard lock(mutex);
  auto it = choices.find(key);
  if (it == choices.end()) it = choices.emplace(key, choose(lib, args, sa, sb, sc)).first;
  Choice& x = it->second;
  if (!x.found) return false;
  set_pointers(x, args);
  const float one = 1.0f, beta = args.accumulate ? 1.0f : 0.0f;
  check_lt("cublasLtMatmul",
           cublasLtMatmul(lib.handle, x.product, &one, b.data, x.a, a.data, x.b, &beta, c.data, x.c, c.data, x.c,
                          &x.algorithm, lib.workspace, static_cast<size_t>(kWorkspace), stream_of(c.device)));
  return true;
}

// The product alone, then GELU.
void multiply_in_steps(const MatmulArgs& args) {
  MatmulArgs bare = args;
  bare.what_aux = MatmulAux::kNone;
  if (args.what_aux == MatmulAux::kGelu) bare.c = args.aux;
  matmul(bare);
  if (args.what_aux == MatmulAux::kGelu)
    unary({args.aux, args.c, UnaryOp::kGeluTanh, 0, 0});
  else
    unary_backward({args.c, args.aux, args.c, UnaryOp::kGeluTanh, 0});
}

}  // namespace

void matmul(const MatmulArgs& args) {
  if (args.c.numel() == 0) return;
  if (args.b_packed) detail::wrong_dtype("matmul with a weight packed for the CPU", static_cast<int>(args.b.dtype));
  if (multiply_rows(args)) return;
  if (multiply_lt(args)) return;
  args.what_aux == MatmulAux::kNone ? multiply_plain(args) : multiply_in_steps(args);
}

}  // namespace cuda
}  // namespace tally
