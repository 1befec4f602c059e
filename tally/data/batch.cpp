#include "tally/data/batch.h"

#include <cstring>

#include "tally/base/error.h"
#include "tally/base/rng.h"
#include "tally/core/device.h"

namespace tally {

Tensor get_batch(const TokenSource& source, int64_t batch_size, int64_t sequence_length, Device device,
                 Generator& generator, Tensor* targets) {
  const int64_t more = targets != nullptr ? 1 : 0;
  if (batch_size < 1 || sequence_length < 1)
    fail("get_batch: batch_size {} and sequence_length {} must be at least 1", batch_size, sequence_length);
  const int64_t starts = source.size() - sequence_length - more + 1;
  if (starts < 1)
    fail("get_batch: {} tokens do not hold a row of {}{}", source.size(), sequence_length, more ? " and a target" : "");
  require_device(device);
  const uint64_t seed = generator.initial_seed(), stream = generator.next_stream();
  const Dims size(batch_size, sequence_length);
  const bool meta = device.kind == DeviceKind::kMeta, card = device.kind == DeviceKind::kCuda;
  const auto made = [&] { return Tensor::empty(size, DType::kI32, device, Category::kData); };
  Tensor x = made(), y = more ? made() : Tensor();
  if (!meta) {
    const auto host = [&](const Tensor& t) {
      return card && t.defined() ? Tensor::empty_pinned(size, DType::kI32, Category::kWorkspace) : t;
    };
    const Tensor ids = host(x), next = host(y);
    std::vector<int32_t> row(static_cast<size_t>(sequence_length + more));
    const auto bytes = static_cast<size_t>(sequence_length) * sizeof(int32_t);
    for (int64_t i = 0; i < batch_size; ++i) {
      const auto at = random_below(seed, stream, static_cast<uint64_t>(i), static_cast<uint64_t>(starts));
      source.read(static_cast<int64_t>(at), sequence_length + more, row.data());
      std::memcpy(ids.data<int32_t>() + i * sequence_length, row.data(), bytes);
      if (more) std::memcpy(next.data<int32_t>() + i * sequence_length, row.data() + 1, bytes);
    }
    if (card) copy_bytes(x.data_ptr(), device, ids.data_ptr(), kCpu, x.nbytes());
    if (card && more) copy_bytes(y.data_ptr(), device, next.data_ptr(), kCpu, y.nbytes());
  }
  if (more) *targets = y;
  return x;
}

}  // namespace tally
