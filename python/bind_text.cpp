// Data folders and batches: what `tally data build` does.
#include <nanobind/stl/filesystem.h>

#include <variant>

#include "python/bind.h"
#include "tally/data/build.h"
#include "tally/data/loader.h"
#include "tally/text/tokenizer.h"

namespace tally::py {
namespace {

nb::dict split_dict(const SplitInfo& s) {
  nb::dict d;
  d["tokens"] = s.tokens, d["documents"] = s.documents, d["bytes"] = s.bytes, d["shards"] = s.shards;
  return d;
}

nb::dict build(const Tokenizer& tokenizer, const std::vector<std::string>& inputs, const std::filesystem::path& out,
               double val_fraction, const std::string& separator, const std::string& end_token, int64_t shard_tokens,
               bool overwrite) {
  if (!(val_fraction >= 0 && val_fraction < 1))
    fail_value("build_data: val_fraction is {}; it is in [0, 1)", val_fraction);
  if (shard_tokens < 1024) fail_value("build_data: shard_tokens is {}; at least 1024", shard_tokens);
  BuildOptions o;
  o.inputs = inputs, o.out = out, o.val_fraction = val_fraction, o.separator = separator, o.end_token = end_token;
  o.shard_tokens = shard_tokens, o.overwrite = overwrite;
  DataInfo info;
  {
    nb::gil_scoped_release free;
    info = build_data(tokenizer, o);
  }
  nb::dict d;
  d["train"] = split_dict(info.train), d["val"] = split_dict(info.val), d["vocab_size"] = info.vocab_size;
  return d;
}

// Batches of windows of a data folder or a file of ids; batch k is a formula of k.
struct Batches {
  TokenSource source;
  std::variant<RandomWindows, EpochWindows> windows;
  int64_t batch, context;

  static std::variant<RandomWindows, EpochWindows> plan(const TokenSource& s, int64_t batch, int64_t context,
                                                        const std::string& order, uint64_t seed) {
    if (order == "random") return RandomWindows(seed, s.size(), batch, context);
    if (order != "shuffle" && order != "sequential")
      fail_value("Batches: order '{}'; it is random, shuffle or sequential", order);
    return EpochWindows(seed, s.size(), batch, context, order == "shuffle");
  }
  Batches(const std::string& path, int64_t batch_size, int64_t sequence_length, const std::string& order, uint64_t seed,
          const std::string& split, int64_t vocab_size)
      : source(TokenSource::open(path, vocab_size, split)),
        windows(plan(source, batch_size, sequence_length, order, seed)),
        batch(batch_size),
        context(sequence_length) {}
  std::pair<Tensor, Tensor> at(int64_t step) const {
    if (step < 0) fail_index("Batches: batch {}; they count from 0", step);
    Tensor x = Tensor::empty(Dims(batch, context), DType::kI32, kCpu, Category::kData);
    Tensor y = Tensor::empty(Dims(batch, context), DType::kI32, kCpu, Category::kData);
    std::visit([&](const auto& w) { w.fill(source, step, x.data<int32_t>(), y.data<int32_t>()); }, windows);
    return {x, y};
  }
};

}  // namespace

void bind_text(nb::module_& m) {
  bind_tokenizer(m);
  m.def("build_data", build, "tokenizer"_a, "inputs"_a, "out"_a, "val_fraction"_a = 0.1, "separator"_a = "",
        "end_token"_a = "<|endoftext|>", "shard_tokens"_a = 100'000'000, "overwrite"_a = false,
        "Text files to a folder of token shards for training and validation, which appears complete or not at all.");
  nb::class_<Batches>(
      m, "Batches",
      "Batches (x, y) of token ids, each (batch_size, sequence_length) int32, y one token to the right of x. "
      "Batch k depends on k and the seed alone.")
      .def(nb::init<const std::string&, int64_t, int64_t, const std::string&, uint64_t, const std::string&, int64_t>(),
           "path"_a, "batch_size"_a, "sequence_length"_a, nb::kw_only(), "order"_a = "random", "seed"_a = 0,
           "split"_a = "train", "vocab_size"_a = int64_t{1} << 31,
           "path: a data folder, .tok, .npy or a raw file such as 'ids.bin:i32'. order: random, shuffle, sequential.")
      .def("__getitem__", &Batches::at, "step"_a, Release())
      .def_prop_ro("tokens", [](const Batches& b) { return b.source.size(); });
}

}  // namespace tally::py
