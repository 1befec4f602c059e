// Tokenizers under the names people know from tiktoken and Hugging Face's tokenizers. Work runs without Python's lock;
// ids come as lists, or as NumPy arrays that own what the encoder wrote.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string_view.h>

#include <memory>

#include "python/bind.h"
#include "python/tokenizer_args.h"
#include "tally/text/pattern.h"

namespace tally::py {
namespace {

constexpr size_t kParallelFrom = 1 << 20;  // bytes of one text from which all threads take part

// Arguments of train() after the vocabulary's size.
struct TrainArgs {
  std::vector<std::string> special_tokens;
  std::optional<std::string> pattern;
  std::string tie, alphabet;
  int64_t min_frequency, max_token_bytes, min_count, max_memory;
  nb::object progress;
};

TokenizerSpec spec_of(const std::string& kind, int64_t vocab_size, const TrainArgs& a) {
  TokenizerSpec spec;
  spec.kind = parse_tokenizer_kind(kind), spec.vocab_size = vocab_size, spec.specials = a.special_tokens;
  if (spec.kind == TokenizerKind::kBpe && vocab_size == 0) fail_value("train: a bpe tokenizer needs vocab_size");
  if (a.alphabet != "all" && a.alphabet != "used") fail_value("train: alphabet '{}'; it is all or used", a.alphabet);
  spec.tie = parse_bpe_tie(a.tie), spec.all_bytes = a.alphabet == "all";
  if (a.pattern) spec.pattern = Pattern::named(*a.pattern);
  spec.min_frequency = a.min_frequency, spec.max_token_bytes = a.max_token_bytes, spec.min_count = a.min_count;
  spec.max_memory = a.max_memory;
  if (!a.progress.is_none())
    spec.progress = [call = a.progress.ptr()](const char* phase, int64_t done, int64_t total) {  // a borrows it
      nb::gil_scoped_acquire held;
      nb::borrow(call)(phase, done, total);
    };
  return spec;
}

Tokenizer train_texts(const std::vector<nb::object>& texts, const std::string& kind, int64_t size, const TrainArgs& a) {
  const TokenizerSpec spec = spec_of(kind, size, a);
  std::vector<TextArg> kept(texts.begin(), texts.end());
  std::vector<std::string_view> views;
  for (const TextArg& t : kept) views.push_back(t.view());
  nb::gil_scoped_release free;
  return train_tokenizer(spec, views);
}

Tokenizer train_files(const std::vector<std::filesystem::path>& files, const std::string& kind, int64_t size,
                      const TrainArgs& a) {
  const TokenizerSpec spec = spec_of(kind, size, a);
  nb::gil_scoped_release free;
  return train_tokenizer_files(spec, files);
}

// train() and train_files(), which differ in where the text comes from.
template <class Source, class F>
void def_train(nb::class_<Tokenizer>& c, const char* name, const char* source, F f, const char* doc) {
  c.def_static(
      name,
      [f](const Source& texts, const std::string& kind, int64_t vocab_size, std::vector<std::string> special_tokens,
          std::optional<std::string> pattern, std::string tie, int64_t min_frequency, int64_t max_token_bytes,
          std::string alphabet, int64_t min_count, int64_t max_memory, nb::object progress) {
        return f(texts, kind, vocab_size,
                 TrainArgs{std::move(special_tokens), std::move(pattern), std::move(tie), std::move(alphabet),
                           min_frequency, max_token_bytes, min_count, max_memory, std::move(progress)});
      },
      nb::arg(source), "kind"_a = "bpe", "vocab_size"_a = 0, "special_tokens"_a = nb::list(), nb::kw_only(),
      "pattern"_a = nb::none(), "tie"_a = "greatest-bytes", "min_frequency"_a = 1, "max_token_bytes"_a = 0,
      "alphabet"_a = "all", "min_count"_a = 1, "max_memory"_a = 0, "progress"_a = nb::none(), doc);
}

Ids ids_of_text(const Tokenizer& t, nb::handle text, const SpecialsArg& specials) {
  const TextArg arg(text);
  specials.check(t, arg.view());
  const SpecialPolicy policy = specials.policy(t);
  nb::gil_scoped_release free;
  return arg.view().size() > kParallelFrom ? t.encode_parallel(arg.view(), policy) : t.encode(arg.view(), policy);
}

std::vector<Ids> ids_of_texts(const Tokenizer& t, nb::handle texts, const SpecialsArg& specials) {
  if (nb::isinstance<nb::str>(texts) || nb::isinstance<nb::bytes>(texts) || !nb::hasattr(texts, "__iter__"))
    fail_type("encode_batch: takes a list or another iterable of texts (str or bytes), not a {}",
              nb::str(texts.type().attr("__name__")).c_str());
  std::vector<TextArg> kept;
  for (const nb::handle text : nb::iter(texts)) kept.emplace_back(text);
  std::vector<std::string_view> views;
  for (const TextArg& k : kept) {
    specials.check(t, k.view());
    views.push_back(k.view());
  }
  const SpecialPolicy policy = specials.policy(t);
  nb::gil_scoped_release free;
  return t.encode_batch(views, policy);
}

nb::list lists_of(const std::vector<Ids>& batch) {
  nb::list all;
  for (const Ids& ids : batch) all.append(list_of(ids));
  return all;
}

nb::tuple arrays_of(const std::vector<Ids>& batch) {
  size_t total = 0;
  for (const Ids& ids : batch) total += ids.size();
  Ids flat;
  flat.reserve(total);
  auto offsets = std::make_unique<std::vector<int64_t>>(1, 0);
  for (const Ids& ids : batch) {
    flat.insert(flat.end(), ids.begin(), ids.end());
    offsets->push_back(static_cast<int64_t>(flat.size()));
  }
  const size_t shape[] = {offsets->size()};
  int64_t* data = offsets->data();
  const nb::capsule owner(offsets.release(), [](void* p) noexcept { delete static_cast<std::vector<int64_t>*>(p); });
  return nb::make_tuple(array_of(std::move(flat)), nb::ndarray<nb::numpy, int64_t>(data, 1, shape, owner));
}

std::string bytes_of(const Tokenizer& t, nb::handle ids) {
  const IdsArg arg(ids);
  nb::gil_scoped_release free;
  return t.decode(arg.span());
}
nb::bytes to_bytes(std::string_view bytes) { return nb::bytes(bytes.data(), bytes.size()); }

nb::tuple decode_with_offsets(const Tokenizer& t, nb::handle ids) {
  const IdsArg arg(ids);
  nb::list starts;
  for (const auto& [first, last] : t.char_offsets(arg.span())) starts.append(first);
  return nb::make_tuple(str_of(t.decode(arg.span()), "replace"), starts);
}

// Text that comes in chunks as an iterator of ids; holds no more than a chunk and its ids.
class IdStream {
 public:
  IdStream(const Tokenizer& t, nb::handle chunks, const SpecialsArg& specials)
      : encoder_(t, specials.policy(t)), source_(nb::steal(PyObject_GetIter(chunks.ptr()))) {
    if (!source_.is_valid()) nb::raise_python_error();
  }
  int32_t next() {
    while (at_ == ids_.size()) {
      if (done_) throw nb::stop_iteration();
      ids_.clear(), at_ = 0;
      nb::object chunk = nb::steal(PyIter_Next(source_.ptr()));
      if (chunk.is_valid()) {
        const TextArg text(chunk);
        encoder_.push(text.view(), ids_);
      } else if (PyErr_Occurred()) {
        nb::raise_python_error();
      } else {
        encoder_.finish(ids_), done_ = true;
      }
    }
    return ids_[at_++];
  }

 private:
  StreamEncoder encoder_;
  nb::object source_;
  Ids ids_;
  size_t at_ = 0;
  bool done_ = false;
};

constexpr const char* kSpecialsDoc =
    " Special tokens are recognised unless allow_special is False. allowed_special (\"all\" or names) and "
    "disallowed_special (\"all\" or names) are tiktoken's: with one of them given, a special token in the text that is "
    "neither allowed nor text by disallowed_special=() is a ValueError.";

// Methods that encode: their last arguments say what special tokens become.
template <class F>
void def_encode(nb::class_<Tokenizer>& c, const char* name, const char* argument, const std::string& doc, F f) {
  c.def(
      name,
      [f](const Tokenizer& t, nb::object text, bool allow_special, nb::object allowed, nb::object disallowed) {
        return f(t, text, SpecialsArg{allow_special, std::move(allowed), std::move(disallowed)});
      },
      nb::arg(argument), "allow_special"_a = true, nb::kw_only(), "allowed_special"_a = nb::none(),
      "disallowed_special"_a = nb::none(), (doc + kSpecialsDoc).c_str());
}

void bind_encoding(nb::class_<Tokenizer>& c) {
  def_encode(
      c, "encode", "text", "Ids of the text (str or bytes) as a list.",
      [](const Tokenizer& t, nb::handle text, const SpecialsArg& s) { return list_of(ids_of_text(t, text, s)); });
  def_encode(
      c, "encode_to_numpy", "text", "Ids of the text as an array of int32; no list is made.",
      [](const Tokenizer& t, nb::handle text, const SpecialsArg& s) { return array_of(ids_of_text(t, text, s)); });
  def_encode(
      c, "encode_batch", "texts", "Ids of each text, by all threads, as a list of lists.",
      [](const Tokenizer& t, nb::handle texts, const SpecialsArg& s) { return lists_of(ids_of_texts(t, texts, s)); });
  def_encode(
      c, "encode_batch_to_numpy", "texts",
      "Ids of all texts one after another (int32) and where each starts (int64, one more than there are texts).",
      [](const Tokenizer& t, nb::handle texts, const SpecialsArg& s) { return arrays_of(ids_of_texts(t, texts, s)); });
  def_encode(c, "count", "text", "How many ids encode() gives; they are not kept.",
             [](const Tokenizer& t, nb::handle text, const SpecialsArg& s) {
               const TextArg arg(text);
               s.check(t, arg.view());
               const SpecialPolicy policy = s.policy(t);
               nb::gil_scoped_release free;
               return t.count(arg.view(), policy);
             });
  def_encode(c, "encode_with_offsets", "text", "Ids, and for each the characters [first, last) that it touches.",
             [](const Tokenizer& t, nb::handle text, const SpecialsArg& s) {
               const TextArg arg(text);
               s.check(t, arg.view());
               EncodedText found;
               {
                 const SpecialPolicy policy = s.policy(t);
                 nb::gil_scoped_release free;
                 found = t.encode_with_offsets(arg.view(), policy);
               }
               return nb::make_tuple(list_of(found.ids), nb::cast(found.chars));
             });
  for (const char* name : {"encode_stream", "encode_iterable"})
    def_encode(
        c, name, "chunks",
        "Ids of a text that comes in chunks (an iterable of str or bytes, such as an open file), one by one: those "
        "of the whole text.",
        [](const Tokenizer& t, nb::handle chunks, const SpecialsArg& s) { return IdStream(t, chunks, s); });
  c.def(
       "encode_ordinary",
       [](const Tokenizer& t, nb::handle text) {
         return list_of(ids_of_text(t, text, {false, nb::none(), nb::none()}));
       },
       "text"_a, "Ids of the text, special tokens in it being ordinary text.")
      .def(
          "encode_ordinary_batch",
          [](const Tokenizer& t, nb::handle texts) {
            return lists_of(ids_of_texts(t, texts, {false, nb::none(), nb::none()}));
          },
          "texts"_a, "encode_ordinary of each text, on all cores.")
      .def(
          "encode_with_dropout",
          [](const Tokenizer& t, nb::handle text, double probability, uint64_t seed, bool allow_special) {
            const TextArg arg(text);
            Ids ids;
            {
              nb::gil_scoped_release free;
              ids = t.encode_with_dropout(arg.view(), probability, seed,
                                          allow_special ? Specials::kAllow : Specials::kAsText);
            }
            return list_of(ids);
          },
          "text"_a, "probability"_a, "seed"_a = 0, "allow_special"_a = true,
          "BPE-dropout: each merge is passed over with this probability; the ids depend on text, seed and "
          "probability.");
}

nb::bytes bytes_of_token(const Tokenizer& t, int64_t id) {
  const std::string_view bytes = t.token_bytes(id);
  if (bytes.empty()) fail("token id {} is one that the vocabulary leaves out", id);
  return to_bytes(bytes);
}

void bind_decoding(nb::class_<Tokenizer>& c) {
  c.def(
       "decode",
       [](const Tokenizer& t, nb::handle ids, const char* errors) { return str_of(bytes_of(t, ids), errors); }, "ids"_a,
       "errors"_a = "replace", "The text of the ids (a list, array or tensor); errors as in bytes.decode().")
      .def(
          "decode_bytes", [](const Tokenizer& t, nb::handle ids) { return to_bytes(bytes_of(t, ids)); }, "ids"_a,
          "The exact bytes of the ids.")
      .def(
          "decode_batch",
          [](const Tokenizer& t, const std::vector<nb::object>& batch, const char* errors) {
            nb::list all;
            for (const nb::object& ids : batch) all.append(str_of(bytes_of(t, ids), errors));
            return all;
          },
          "batch"_a, "errors"_a = "replace", "decode() of each list of ids.")
      .def(
          "decode_tokens_bytes",
          [](const Tokenizer& t, nb::handle ids) {
            const IdsArg arg(ids);
            nb::list all;
            for (const int32_t id : arg.span()) all.append(bytes_of_token(t, id));
            return all;
          },
          "ids"_a, "The bytes of each id.")
      .def("decode_with_offsets", decode_with_offsets, "ids"_a,
           "The text and for each id the character at which it starts; one that starts inside a character counts from "
           "that character.")
      .def(
          "char_offsets", [](const Tokenizer& t, nb::handle ids) { return t.char_offsets(IdsArg(ids).span()); },
          "ids"_a, "For each id the characters [first, last) that it touches.")
      .def(
          "token_bytes", [](const Tokenizer& t, int64_t id) { return bytes_of_token(t, id); }, "id"_a,
          "The bytes of one token.")
      .def(
          "decode_single_token_bytes", [](const Tokenizer& t, int64_t id) { return bytes_of_token(t, id); }, "id"_a,
          "token_bytes under tiktoken's name.")
      .def(
          "token_byte_values",
          [](const Tokenizer& t) {
            nb::list all;
            for (int32_t id = 0; id < t.vocab_size(); ++id) all.append(to_bytes(t.token_bytes(id)));
            return all;
          },
          "The bytes of every token, by id; none for an id that the vocabulary leaves out.");
}

void bind_properties(nb::class_<Tokenizer>& c) {
  c.def_prop_ro("kind", [](const Tokenizer& t) { return tokenizer_kind_name(t.kind()); })
      .def_prop_ro(
          "pattern", [](const Tokenizer& t) { return t.pattern().name(); },
          "Name of the pattern that cuts text into pieces (bpe and word).")
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def_prop_ro("n_vocab", &Tokenizer::vocab_size)
      .def_prop_ro("max_token_value", [](const Tokenizer& t) { return t.vocab_size() - 1; })
      .def_prop_ro("hash", &Tokenizer::hash, "32 hexadecimal digits that differ where tokenizers do.")
      .def_prop_ro("special_tokens",
                   [](const Tokenizer& t) {
                     nb::dict all;
                     for (const auto& [name, id] : t.specials()) all[nb::str(name.data(), name.size())] = id;
                     return all;
                   })
      .def_prop_ro("special_tokens_set",
                   [](const Tokenizer& t) {
                     nb::set all;
                     for (const auto& [name, id] : t.specials()) all.add(nb::str(name.data(), name.size()));
                     return all;
                   })
      .def_prop_ro(
          "eot_token", [](const Tokenizer& t) { return t.special_id("<|endoftext|>"); },
          "Id of <|endoftext|>, or None.")
      .def("with_specials", &Tokenizer::with_specials, "names"_a,
           "The same tokenizer with these special tokens and no others.")
      .def("__len__", &Tokenizer::vocab_size)
      .def("__repr__", [](const Tokenizer& t) {
        return fmt::format("Tokenizer(kind='{}', vocab_size={})", tokenizer_kind_name(t.kind()), t.vocab_size());
      });
}

void bind_streams(nb::module_& m) {
  nb::class_<IdStream>(m, "IdStream", "What Tokenizer.encode_stream() gives: an iterator of ids.")
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &IdStream::next);
  nb::class_<StreamEncoder>(m, "StreamEncoder",
                            "Encodes text that comes in chunks: the ids are those of the whole text.")
      .def(nb::init<Tokenizer, bool>(), "tokenizer"_a, "allow_special"_a = true)
      .def(
          "push",
          [](StreamEncoder& s, nb::handle chunk) {
            const TextArg text(chunk);
            Ids ids;
            s.push(text.view(), ids);
            return list_of(ids);
          },
          "chunk"_a, "The ids that no further text can change.")
      .def(
          "finish",
          [](StreamEncoder& s) {
            Ids ids;
            s.finish(ids);
            return list_of(ids);
          },
          "The rest; the encoder is then empty and can be used again.");
  nb::class_<StreamDecoder>(
      m, "StreamDecoder",
      "Ids to text one by one; a character comes when its last byte is there, broken bytes as U+FFFD.")
      .def(nb::init<Tokenizer>(), "tokenizer"_a)
      .def(
          "push", [](StreamDecoder& s, int32_t id) { return str_of(s.push(id), "strict"); }, "id"_a,
          "The characters that this id completes.")
      .def(
          "finish", [](StreamDecoder& s) { return str_of(s.finish(), "strict"); },
          "What an unfinished character leaves: U+FFFD or nothing.");
}

}  // namespace

void bind_tokenizer(nb::module_& m) {
  nb::class_<Tokenizer> c(
      m, "Tokenizer",
      "Text to token ids and back: byte-level BPE, bytes, characters or words. Constant, cheap to copy, "
      "safe between threads.");
  c.def(nb::init<>(), "The byte tokenizer without special tokens.")
      .def_static(
          "from_file",
          [](const std::filesystem::path& path, std::optional<std::string> pattern, std::vector<std::string> specials) {
            return Tokenizer::load(path, {pattern.value_or(""), std::move(specials)});
          },
          "path"_a, nb::kw_only(), "pattern"_a = nb::none(), "special_tokens"_a = nb::list(), Release(),
          "Reads a tokenizer's folder (its own, or GPT-2's vocab.json and merges.txt), a tokenizer.json, or a "
          ".tiktoken "
          "file, to which pattern (by the file's name if not given) and special_tokens ('<|x|>' or '<|x|>=ID') belong.")
      .def("save", &Tokenizer::save, "folder"_a, Release(), "Writes the folder that from_file() reads.")
      .def(
          "save_as", [](const Tokenizer& t, const std::filesystem::path& path) { t.save_as(path); }, "path"_a,
          Release(), "Writes *.json as tokenizer.json, *.tiktoken as ranks, anything else as a folder.");
  def_train<std::vector<nb::object>>(
      c, "train", "texts", train_texts,
      "Learns a vocabulary from texts (str or bytes), none of which merges into the next. kind: bpe, byte, char, word. "
      "pattern: how text is cut before merges: a name (gpt2, cl100k, o200k, llama3, qwen2, ...) or 'regex:' and an "
      "expression. tie: which of the pairs with the same count is merged first. alphabet: 'all' bytes or those 'used'. "
      "min_count: rarer words become <|unk|>. max_memory: bytes, 0 for no limit. progress: called with the phase, what "
      "is "
      "done and the total.");
  def_train<std::vector<std::filesystem::path>>(c, "train_files", "files", train_files, "The same from text files.");
  bind_encoding(c);
  bind_decoding(c);
  bind_properties(c);
  bind_streams(m);
}

}  // namespace tally::py
