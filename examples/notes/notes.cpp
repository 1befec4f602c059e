// The course's lectures 1 and 2 in C++, snippet by snippet; notes.py has the same in Python. tools/make_notes.py runs
// both and writes docs/notes.md. What stands between // [name] and // [end] is shown.
#include "print.h"
using namespace tally;

void creation() {
  // [creation]
  const Tensor x = tensor({{1., 2, 3}, {4, 5, 6}});  // one float literal makes all f32
  print(x, x.sizes(), x.numel());
  print(zeros({2, 3}), arange(4), full({2}, 7));
  print(tensor({{1, 2}, {3, 4}}));  // only integers: i64
  // [end]
}

void broadcasting() {
  // [broadcasting]
  const Tensor x = ones({2, 2, 3}), position = tensor({{0., 1, 2}, {3, 4, 5}});
  print(x + position);                                                     // (B, T, D) + (T, D)
  print(equal(view(position, {3, 2}), tensor({{0, 1}, {2, 3}, {4, 5}})));  // compares after promotion
  // [end]
}

void dtypes() {
  // [dtypes]
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3})
    print(zeros({4, 8}, {.dtype = t}).nbytes());
  print(tensor({1e-8}, {.dtype = DType::kF16}));   // underflows
  print(tensor({1e-8}, {.dtype = DType::kBF16}));  // has the exponents of f32
  // [end]
}

void limits() {
  // [limits]
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16}) print(finfo(t).max, finfo(t).tiny, finfo(t).eps);
  const Tensor x = tensor({1000., 0.3, 1 / 512.});
  print(to(to(x, DType::kF8E4M3), DType::kF32));  // at most 448, 3 bits of fraction
  print(to(to(x, DType::kF8E5M2), DType::kF32));  // at most 57344, 2 bits
  // [end]
}

void memory() {
  // [memory]
  const Tensor w = empty({4 * 12288, 12288}, {.device = kMetaCpu});  // a matrix of GPT-3; on meta it takes no memory
  print(w.numel(), w.nbytes(), w.nbytes() / double(1 << 30));        // 2.25 GiB
  const int64_t before = memory_allocated(kCpu);
  const Tensor x = zeros({32, 32}), y = zeros({32, 32}), row = select(x, 0, 3);  // the row is a view
  print(memory_allocated(kCpu) - before);
  // [end]
}

void strides() {
  // [strides]
  const Tensor x = view(arange(16), {4, 4});
  print(x.strides(), x.stride(0), x.stride(1));
  print(2 * x.stride(0) + 2 * x.stride(1), index(x, {2, 2}));
  // [end]
}

void views() {
  // [views]
  Tensor x = tensor({{1., 2, 3}, {4, 5, 6}});
  const Tensor row = index(x, {0}), column = index(x, {Slice(), 1}), y = transpose(x, 1, 0);
  print(row, row.strides(), row.storage_offset());
  print(column, column.strides(), column.storage_offset());
  print(y, y.strides(), y.is_contiguous(), y.shares_storage(x));
  index_put_(x, {0, 0}, 100.0);
  print(row, y);  // all see the write
  // [end]
}

void refused_view() {
  // [refused view]
  const Tensor x = tensor({{1., 2, 3}, {4, 5, 6}}), y = transpose(x, 1, 0);
  try {
    view(y, {2, 3});
  } catch (const Error& e) {
    print(e.what());
  }
  print(view(y, {3, 1, 2}).shares_storage(x));  // compatible strides suffice
  const Tensor z = view(contiguous(y), {2, 3});
  print(z, z.shares_storage(x), equal(z, reshape(y, {2, 3})));
  // [end]
}

void elementwise() {
  // [elementwise]
  const Tensor x = tensor({1, 4, 9});
  print(pow(x, 2), x + x, x * 2);     // integers stay integers
  print(sqrt(x), rsqrt(x), x / 0.5);  // f32
  print(triu(ones({3, 3})));          // the causal mask
  // [end]
}

void products() {
  // [matmul]
  const Tensor x = ones({4, 8, 16, 32}), w = ones({32, 2});
  const Tensor y = matmul(x, w);  // the one matrix for all 4 * 8 leading items
  print(y.sizes(), index(y, {0, 0, 0}));
  const Tensor q = ones({2, 3, 4});
  print(matmul(q, transpose(q, -2, -1)));
  // [end]
}

void einops() {
  // [einsum]
  const Tensor x = view(arange(12.), {2, 2, 3}), y = ones({2, 2, 3});
  print(einsum({x, y}, "batch seq1 hidden, batch seq2 hidden -> batch seq1 seq2"));
  print(einsum({x, y}, "... seq1 hidden, ... seq2 hidden -> ... seq1 seq2").sizes());
  // [end]
}

void reductions() {
  // [reduce]
  const Tensor x = view(arange(12.), {2, 2, 3});
  print(reduce(x, "... hidden -> ...", "sum"), sum(x, -1));
  print(reduce(x, "... hidden -> ...", "mean"), mean(x, -1));
  // [end]
}

void heads() {
  // [rearrange]
  const Tensor x = view(arange(8.), {1, 1, 8});
  const Tensor y = rearrange(x, "... (heads hidden1) -> ... heads hidden1", {{"heads", 2}});
  print(y, y.shares_storage(x));
  const Tensor z = einsum({y, ones({4, 4})}, "... hidden1, hidden1 hidden2 -> ... hidden2");
  print(rearrange(z, "... heads hidden2 -> ... (heads hidden2)"));
  // [end]
}

void annotations() {
  // [shapes]
  const Shapes s = expect(ones({2, 2, 1, 3}), "batch seq heads hidden");
  print(s["batch"], s["hidden"]);
  // [end]
}

void gradients() {
  // [gradients]
  const Tensor x = tensor({1., 2, 3}), w = tensor({1., 1, 1}, {.requires_grad = true});
  const Tensor pred = sum(x * w), loss = 0.5 * square(pred - 5);
  backward(loss);
  print(pred.detach(), loss.detach(), w.grad());
  print(x.grad().defined(), pred.grad().defined());  // no gradient wanted; not a leaf
  // [end]
}

void two_layers() {
  // [two layers]
  const Tensor x = tensor({{1., 2}, {3, 4}}), w1 = tensor({{1., 0}, {1, 1}}, {.requires_grad = true}),
               w2 = tensor({{1.}, {2}}, {.requires_grad = true});
  Tensor h1 = matmul(x, w1), h2 = matmul(h1, w2);
  h1.retain_grad(), h2.retain_grad();
  backward(mean(square(h2)));
  print(equal(w2.grad(), matmul(t(h1), h2.grad())), equal(h1.grad(), matmul(h2.grad(), t(w2))));
  print(w1.grad());  // x transposed times the gradient of h1
  // [end]
}

void initialisation() {
  // [init]
  manual_seed(0);
  const Tensor x = randn({64, 4096}), w = randn({4096, 32});
  const auto std_of = [](const Tensor& y) { return std::round(sqrt(mean(square(y))).item()); };
  print(std_of(matmul(x, w)), std_of(matmul(x, w / 64)));  // grows with the root of 4096; 1 after Xavier's
  const Tensor cut = trunc_normal({4096, 32}, 0, 1 / 64., -3 / 64., 3 / 64.);
  print(max(abs(cut)).item() <= 3 / 64.);
  // [end]
}

// [modules]
struct NotesLinear {
  Tensor weight;  // (in, out)
  NotesLinear(int64_t in, int64_t out) : weight(Parameter(randn({in, out}) / std::sqrt(in))) {}
  Tensor operator()(const Tensor& x) const { return matmul(x, weight); }
  void visit(Params& p) { p("weight", weight); }
};

struct Cruncher {
  std::vector<NotesLinear> layers;
  NotesLinear last;
  Cruncher(int64_t dim, int64_t num_layers) : layers(make(dim, num_layers)), last(dim, 1) {}
  static std::vector<NotesLinear> make(int64_t dim, int64_t n) {
    std::vector<NotesLinear> all;
    while (n-- > 0) all.emplace_back(dim, dim);
    return all;
  }
  Tensor operator()(Tensor x) const {  // (B, D) -> (B)
    for (const NotesLinear& layer : layers) x = layer(x);
    return squeeze(last(x), -1);
  }
  void visit(Params& p) { p.list("layers", layers), p.child("final", last); }
};
// [end]

void modules() {
  // [modules]

  Cruncher model(64, 2);
  for (const auto& [name, tensor] : state_dict(model)) print(name, tensor.numel());
  print(model(randn({8, 64})).sizes());
  // [end]
}

void randomness() {
  // [randomness]
  manual_seed(0);
  const Tensor first = rand({4});
  manual_seed(0);
  const Tensor again = rand({4}), next = rand({4});
  print(first, equal(again, first), equal(next, first));
  // [end]
}

void data() {
  // [data]
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  write_raw_ids("ids.i32", ids, IdType::kI32);  // 40 bytes, no header
  const TokenSource source = TokenSource::open("ids.i32:i32", 11);
  std::vector<int32_t> x(8), y(8);
  SequentialWindows(source.size(), 2, 4).fill(source, 0, x.data(), y.data());
  print(Tensor::from(x, {2, 4}), Tensor::from(y, {2, 4}));
  // [end]
}

void optimizer() {
  // [optimizer]
  Tensor w = Parameter(tensor({{1., -1}}));
  auto adamw = make_optimizer({.beta2 = 0.999, .weight_decay = 0.1}, {{"w", &w}});
  for (int i = 0; i < 2; ++i) {
    backward(sum(square(w)));
    adamw->step(/*rate=*/0.1, /*grad_scale=*/1);
    clear_grads({{"w", &w}});
    print(w.detach());
  }
  // [end]
}

void train_loop() {
  // [train loop]
  manual_seed(0);
  Cruncher model(16, 0);
  const Tensor true_w = arange(16.);
  for (int step = 0; step < 200; ++step) {
    const Tensor x = randn({4, 16}), y = squeeze(matmul(x, unsqueeze(true_w, 1)), 1);
    const Tensor loss = mse_loss(model(x), y);
    backward(loss);
    for (const Param& p : params_of(model)) add_(p.tensor->detach(), p.tensor->grad(), -0.05);  // SGD
    zero_grad(model);
    if (step % 50 == 0) print(step, std::round(loss.item()));
  }
  print(max(abs(squeeze(model.last.weight.detach(), 1) - true_w)).item() < 1e-3);
  // [end]
}

void checkpoint() {
  // [checkpoint]
  Cruncher model(64, 3), other(64, 3);
  save_tensors("model.safetensors", params_of(model));
  load_tensors("model.safetensors", params_of(other));
  const Tensor x = randn({8, 64});
  print(equal(model(x), other(x)));
  for (const auto& [name, tensor] : state_dict(other)) print(name);
  // [end]
}

int main() {
  const std::pair<const char*, void (*)()> all[] = {{"creation", creation},
                                                    {"broadcasting", broadcasting},
                                                    {"dtypes", dtypes},
                                                    {"limits", limits},
                                                    {"memory", memory},
                                                    {"strides", strides},
                                                    {"views", views},
                                                    {"refused view", refused_view},
                                                    {"elementwise", elementwise},
                                                    {"matmul", products},
                                                    {"einsum", einops},
                                                    {"reduce", reductions},
                                                    {"rearrange", heads},
                                                    {"shapes", annotations},
                                                    {"gradients", gradients},
                                                    {"two layers", two_layers},
                                                    {"init", initialisation},
                                                    {"modules", modules},
                                                    {"randomness", randomness},
                                                    {"data", data},
                                                    {"optimizer", optimizer},
                                                    {"train loop", train_loop},
                                                    {"checkpoint", checkpoint}};
  for (const auto& [name, run] : all) {
    std::cout << "[" << name << "]\n";
    run();
  }
}
