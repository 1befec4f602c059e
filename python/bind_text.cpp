// Tokenizers, data folders and batches: what `tally tokenizer` and `tally data build` do.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string_view.h>

#include <variant>

#include "python/bind.h"
#include "tally/data/build.h"
#include "tally/data/loader.h"
#include "tally/text/tokenizer.h"

namespace tally::py {
namespace {

using Ids = std::vector<int32_t>;

// str or bytes; the object outlives the view.
std::string_view text_of(nb::handle text) {
  if (PyBytes_Check(text.ptr()))
    return {PyBytes_AS_STRING(text.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(text.ptr()))};
  Py_ssize_t n = 0;
  if (!PyUnicode_Check(text.ptr())) fail_type("tokenizer: takes str or bytes, not {}", nb::repr(text.type()).c_str());
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &n);
  if (!data) nb::raise_python_error();
  return {data, static_cast<size_t>(n)};
}

// Ids as a list of ints or a tensor of any shape.
Ids ids_of(nb::handle ids) {
  if (nb::isinstance<Tensor>(ids)) {
    const Tensor& x = nb::cast<const Tensor&>(ids);
    if (!is_integer(x.dtype())) fail_type("tokenizer: ids of dtype {}; they are integers", torch_name(x.dtype()));
    Ids all;
    for (const double v : x.to_vector()) {
      if (v < -2147483648.0 || v > 2147483647.0) fail("tokenizer: id {} is outside every vocabulary", v);
      all.push_back(static_cast<int32_t>(v));
    }
    return all;
  }
  Ids all;
  if (!nb::try_cast(ids, all)) fail_type("tokenizer: ids must be a list of ints or a tensor of integers");
  return all;
}

Tokenizer train(const std::vector<nb::object>& texts, const std::string& kind, int64_t vocab_size,
                const std::vector<std::string>& special_tokens) {
  TokenizerSpec spec{parse_tokenizer_kind(kind), vocab_size, special_tokens, BpeTie::kGreatestBytes};
  if (spec.kind == TokenizerKind::kBpe && vocab_size == 0) fail_value("train: a bpe tokenizer needs vocab_size");
  std::vector<std::string_view> views;
  for (const nb::object& t : texts) views.push_back(text_of(t));
  nb::gil_scoped_release free;
  return train_tokenizer(spec, views);
}

Tokenizer train_files(const std::vector<std::filesystem::path>& files, const std::string& kind, int64_t vocab_size,
                      const std::vector<std::string>& special_tokens) {
  TokenizerSpec spec{parse_tokenizer_kind(kind), vocab_size, special_tokens, BpeTie::kGreatestBytes};
  if (spec.kind == TokenizerKind::kBpe && vocab_size == 0) fail_value("train: a bpe tokenizer needs vocab_size");
  nb::gil_scoped_release free;
  return train_tokenizer_files(spec, files);
}

Ids encode(const Tokenizer& t, nb::handle text, bool allow_special) {
  const std::string_view view = text_of(text);
  nb::gil_scoped_release free;
  return view.size() > 1 << 20 ? t.encode_parallel(view, allow_special) : t.encode(view, allow_special);
}

nb::object decode(const Tokenizer& t, nb::handle ids) {
  const std::string text = t.decode_text(ids_of(ids));
  return nb::str(text.data(), text.size());
}

void bind_tokenizer(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer", "Text to token ids and back: byte-level BPE, bytes, or characters.")
      .def(nb::init<>(), "The byte tokenizer without special tokens.")
      .def_static("from_file", &Tokenizer::load, "folder"_a, Release(),
                  "Reads a tokenizer's folder (vocab.json, merges.txt, tokenizer_config.json; GPT-2's two files do).")
      .def_static(
          "train", train, "texts"_a, "kind"_a = "bpe", "vocab_size"_a = 0, "special_tokens"_a = nb::list(),
          "Learns a vocabulary from texts (str or bytes), none of which merges into the next. kind: bpe, byte, char.")
      .def_static("train_files", train_files, "files"_a, "kind"_a = "bpe", "vocab_size"_a = 0,
                  "special_tokens"_a = nb::list(), "The same from text files.")
      .def("save", &Tokenizer::save, "folder"_a, Release(), "Writes the folder that from_file() reads.")
      .def("encode", encode, "text"_a, "allow_special"_a = true,
           "Ids of the text. Special tokens are recognised unless allow_special is False.")
      .def(
          "encode_batch",
          [](const Tokenizer& t, const std::vector<nb::object>& texts, bool allow_special) {
            std::vector<Ids> all;
            for (const nb::object& text : texts) all.push_back(encode(t, text, allow_special));
            return all;
          },
          "texts"_a, "allow_special"_a = true)
      .def("decode", decode, "ids"_a,
           "The text of the ids (a list or a tensor); bytes that are not UTF-8 become U+FFFD.")
      .def(
          "decode_bytes",
          [](const Tokenizer& t, nb::handle ids) {
            const std::string bytes = t.decode(ids_of(ids));
            return nb::bytes(bytes.data(), bytes.size());
          },
          "ids"_a, "The exact bytes of the ids.")
      .def(
          "decode_batch",
          [](const Tokenizer& t, const std::vector<nb::object>& batch) {
            nb::list all;
            for (const nb::object& ids : batch) all.append(decode(t, ids));
            return all;
          },
          "batch"_a)
      .def(
          "token_bytes",
          [](const Tokenizer& t, int32_t id) {
            const std::string_view bytes = t.token_bytes(id);
            return nb::bytes(bytes.data(), bytes.size());
          },
          "id"_a, "The bytes of one token.")
      .def_prop_ro("kind", [](const Tokenizer& t) { return tokenizer_kind_name(t.kind()); })
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def_prop_ro("hash", &Tokenizer::hash, "32 hexadecimal digits that differ where tokenizers do.")
      .def_prop_ro("special_tokens",
                   [](const Tokenizer& t) {
                     nb::dict all;
                     for (const auto& [name, id] : t.specials()) all[nb::str(name.data(), name.size())] = id;
                     return all;
                   })
      .def("__len__", &Tokenizer::vocab_size)
      .def("__repr__", [](const Tokenizer& t) {
        return fmt::format("Tokenizer(kind='{}', vocab_size={})", tokenizer_kind_name(t.kind()), t.vocab_size());
      });
}

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
