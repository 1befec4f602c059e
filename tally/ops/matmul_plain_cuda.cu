// The matrix product on CUDA for whatever cuBLASLt cannot describe: any strides and dtypes, f64. A block computes a
// tile of 32 x 32, a thread four elements of a column, each a sum in order of k.
#include "tally/ops/device.cuh"
#include "tally/ops/matmul_cuda.h"

namespace tally::cuda {

namespace {

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
    if (dtype == DType::kF16) return static_cast<N>(to_float(reinterpret_cast<const f16*>(data)[at]));
    return static_cast<N>(reinterpret_cast<const double*>(data)[at]);
  }
  template <class N>
  __device__ void store(int64_t i, int64_t j, N x) const {
    char* const to = const_cast<char*>(data);
    const int64_t at = i * row + j * column;
    if (dtype == DType::kF32) reinterpret_cast<float*>(to)[at] = static_cast<float>(x);
    if (dtype == DType::kBF16) store_one(reinterpret_cast<bf16*>(to) + at, static_cast<float>(x));
    if (dtype == DType::kF16) reinterpret_cast<f16*>(to)[at] = to_f16(static_cast<float>(x));
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

}  // namespace

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

}  // namespace tally::cuda
