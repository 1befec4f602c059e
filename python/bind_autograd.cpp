// backward(), grad(), hooks, functions with a backward written in Python, recomputation and offloading.
// The tape runs without the GIL; what is Python's takes it. Python objects that a tape holds are held by Held, which
// lets go of them with the GIL, on whatever thread that is (bind_collect.cpp).
#include <nanobind/stl/shared_ptr.h>

#include <memory>
#include <set>

#include "python/bind.h"
#include "tally/core/custom_node.h"
#include "tally/core/hooks.h"
#include "tally/core/offload.h"
#include "tally/core/recompute.h"
#include "tally/core/tape.h"
#include "tally/ops/backward.h"
#include "tally/ops/creation.h"

namespace tally::py {
namespace {

// Turns recording on or off on this thread for good and says how it was: Python's blocks turn it back.
bool set_grad_mode(bool on) {
  const bool was = !NoGrad::active();
  alignas(NoGrad) std::byte place[sizeof(NoGrad)];
  if (on != was) new (place) NoGrad(!on);  // without its destructor, which would turn it back
  return was;
}

// One tensor or a tuple or list of them, as Python's functions return them; None is undefined.
std::vector<Tensor> tensors_of(nb::handle o, const char* what) {
  std::vector<Tensor> all;
  const auto one = [&](nb::handle t) {
    if (t.is_none()) {
      all.emplace_back();
    } else if (nb::isinstance<Tensor>(t)) {
      all.push_back(nb::cast<const Tensor&>(t));
    } else {
      fail_type("{}: returned a {}; tensors are expected", what, nb::str(t.type()).c_str());
    }
  };
  if (PyTuple_Check(o.ptr()) || PyList_Check(o.ptr())) {
    for (nb::handle t : o) one(t);
  } else {
    one(o);
  }
  return all;
}

nb::object tensors_as(const std::vector<Tensor>& all, bool tuple) {
  if (!tuple) return tensor_or_none(all.at(0));
  nb::list list;
  for (const Tensor& t : all) list.append(tensor_or_none(t));
  return nb::tuple(list);
}

// Names of functions in nodes live as long as the process.
const char* kept_name(const std::string& name) {
  static auto* names = new std::set<std::string>;
  return names->insert(name).first->c_str();
}

// The node of a tally.autograd.Function.
class PythonNode final : public FunctionNode {
 public:
  PythonNode(nb::object backward, nb::object context, std::vector<int> places, const std::vector<Tensor>& outputs)
      : backward_(std::move(backward)), context_(std::move(context)), places_(std::move(places)) {
    for (const Tensor& y : outputs) outputs_.push_back({y.sizes(), y.dtype(), y.device()});
  }

  void keep_in(const Node* node) const { backward_.keep_in(node), context_.keep_in(node); }

 protected:
  std::vector<Tensor> run(FunctionContext& c, const std::vector<Tensor>& gradients) override {
    std::vector<Tensor> given = gradients;
    for (size_t i = 0; i < given.size(); ++i)
      if (!given[i].defined())
        given[i] = zeros(outputs_[i].size, {.dtype = outputs_[i].dtype, .device = outputs_[i].device});
    nb::gil_scoped_acquire lock;
    nb::object context = nb::borrow(context_.get());
    context.attr("_saved") = tensors_as(c.saved(), true);
    const nb::object arguments = nb::make_tuple(context) + tensors_as(given, true);
    const nb::object result = nb::steal(PyObject_CallObject(backward_.get().ptr(), arguments.ptr()));
    if (!result.is_valid()) nb::raise_python_error();
    context.attr("_saved") = nb::none();
    const std::vector<Tensor> all = tensors_of(result, "backward");
    const size_t arguments_of_forward = places_.size();
    if (all.size() != arguments_of_forward)
      fail("backward: returned {} gradients for {} arguments of forward", all.size(), arguments_of_forward);
    std::vector<Tensor> of_tensors;
    for (size_t i = 0; i < all.size(); ++i)
      if (places_[i] >= 0) of_tensors.push_back(all[i]);
    return of_tensors;
  }

 private:
  Held backward_, context_;
  std::vector<int> places_;  // of each argument of forward: its number among the tensors, or -1
  std::vector<InputMeta> outputs_;
};

// Which of the results of a forward were given to mark_non_differentiable().
std::vector<bool> marked(nb::handle result, nb::handle tensors, size_t n) {
  std::vector<bool> all(n, false);
  const bool many = PyTuple_Check(result.ptr()) || PyList_Check(result.ptr());
  for (size_t i = 0; i < n; ++i) {
    const nb::object y = many ? nb::object(result[i]) : nb::borrow(result);
    for (nb::handle t : tensors) all[i] = all[i] || t.is(y);
  }
  return all;
}

// Function.apply(): runs forward(ctx, *arguments) unrecorded and records its backward.
nb::object apply_function(const std::string& name, nb::object forward, nb::object backward, nb::object context,
                          nb::tuple arguments) {
  std::vector<Tensor> inputs;
  std::vector<int> places;
  for (nb::handle a : arguments) {
    const bool tensor = nb::isinstance<Tensor>(a);
    places.push_back(tensor ? static_cast<int>(inputs.size()) : -1);
    if (tensor) inputs.push_back(nb::cast<const Tensor&>(a));
  }
  FunctionCall call(inputs);
  nb::list needs;
  for (size_t i = 0; i < places.size(); ++i)
    needs.append(places[i] >= 0 && call.context.needs(static_cast<size_t>(places[i])));
  context.attr("needs_input_grad") = nb::tuple(needs);
  nb::object result;
  {
    NoGrad quiet;
    const nb::object all = nb::make_tuple(context) + arguments;
    result = nb::steal(PyObject_CallObject(forward.ptr(), all.ptr()));
    if (!result.is_valid()) nb::raise_python_error();
  }
  std::vector<Tensor> outputs = tensors_of(result, "forward");
  for (Tensor& y : outputs) {
    if (!y.defined()) fail_type("{}: forward returned None", name);
    y = y.detach();
  }
  const std::vector<bool> plain = marked(result, context.attr("_not_differentiable"), outputs.size());
  if (call.needed) {
    call.context.save(tensors_of(context.attr("_saved"), "save_for_backward"));
    context.attr("_saved") = nb::none();
    auto node = std::make_unique<PythonNode>(backward, context, places, outputs);
    PythonNode* const recorded = node.get();
    call.record(kept_name(name), outputs, std::move(node));
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].node()) recorded->keep_in(outputs[i].node().get());
      if (plain[i]) outputs[i] = outputs[i].detach();
    }
  }
  return tensors_as(outputs, PyTuple_Check(result.ptr()) || PyList_Check(result.ptr()));
}

std::vector<Tensor> call_with(nb::handle f, const std::vector<Tensor>& x, bool* tuple) {
  nb::list all;
  for (const Tensor& t : x) all.append(t);
  const nb::object result = nb::steal(PyObject_CallObject(f.ptr(), nb::tuple(all).ptr()));
  if (!result.is_valid()) nb::raise_python_error();
  if (tuple) *tuple = PyTuple_Check(result.ptr()) || PyList_Check(result.ptr());
  return tensors_of(result, "recompute");
}

nb::object python_recompute(nb::object f, const nb::args& args) {
  std::vector<Tensor> inputs;
  for (nb::handle a : args) {
    if (!nb::isinstance<Tensor>(a)) fail_type("recompute: takes tensors; bind other arguments with functools.partial");
    inputs.push_back(nb::cast<const Tensor&>(a));
  }
  bool tuple = false;
  const Held held(std::move(f));
  bool* first = &tuple;  // of the first run only
  const TensorFunction run = [held, first](const std::vector<Tensor>& x) mutable {
    nb::gil_scoped_acquire lock;
    return call_with(held.get(), x, std::exchange(first, nullptr));
  };
  std::vector<Tensor> outputs;
  {
    const Unlocked free;
    outputs = recompute(run, inputs);
  }
  return tensors_as(outputs, tuple);
}

// A hook's Python function. What it raises ends the backward.
HookHandle hook(const Tensor& x, nb::object f) {
  const Held held(std::move(f));
  if (x.requires_grad()) held.keep_in(x.node().get());
  return register_hook(x, [held](const Tensor& gradient) {
    nb::gil_scoped_acquire lock;
    const nb::object result = held.get()(gradient);
    if (result.is_none()) return Tensor{};
    if (!nb::isinstance<Tensor>(result))
      fail_type("hook: returned a {}; a tensor or None is expected", nb::str(result.type()).c_str());
    return nb::cast<Tensor>(result);
  });
}

HookHandle accumulate_hook(const Tensor& leaf, nb::object f) {
  const Held held(std::move(f));
  if (leaf.requires_grad()) held.keep_in(leaf.node().get());
  return register_post_accumulate_grad_hook(leaf, [held](Tensor& x) {
    nb::gil_scoped_acquire lock;
    held.get()(x);
  });
}

std::vector<Tensor> list_of(nb::handle o, const char* what) {
  if (o.is_none()) return {};
  return tensors_of(o, what);
}

nb::object python_grad(nb::handle outputs, nb::handle inputs, nb::handle grad_outputs, bool retain_graph,
                       bool allow_unused, bool create_graph) {
  const std::vector<Tensor> y = list_of(outputs, "grad"), x = list_of(inputs, "grad"),
                            g = list_of(grad_outputs, "grad");
  std::vector<Tensor> all;
  {
    const Unlocked free;
    all = grad(y, x, g, retain_graph, allow_unused, create_graph);
  }
  return tensors_as(all, true);
}

// The op that made a tensor, as PyTorch's grad_fn.
struct GradFn {
  Ref<Node> node;
  std::string name() const { return node->is_leaf() ? "leaf" : node->op(); }
  nb::tuple next() const {
    nb::list all;
    for (size_t i = 0; i < node->input_count(); ++i)
      all.append(node->input(i) ? nb::cast(GradFn{node->input(i)}) : nb::none());
    return nb::tuple(all);
  }
};

class Offload {
 public:
  Offload(const Offload&) = delete;
  explicit Offload(int64_t least_bytes) : least_(least_bytes) {}
  void enter() { scopes_.push_back(std::make_unique<OffloadSaved>(least_)); }
  void leave() {
    if (!scopes_.empty()) scopes_.pop_back();
  }

 private:
  int64_t least_;
  std::vector<std::unique_ptr<OffloadSaved>> scopes_;
};

}  // namespace

void bind_autograd(nb::module_& m, TensorClass& c) {
  m.def(
      "is_grad_enabled", [] { return !NoGrad::active(); }, "Whether ops are recorded on this thread.");
  m.def("set_grad_mode", set_grad_mode, "on"_a, "Records ops on this thread or not; returns what it was.");
  m.def("apply_function", apply_function, "What tally.autograd.Function.apply() calls.");
  m.def("recompute", python_recompute, "function"_a, "args"_a,
        "function(*tensors), of whose saved tensors none is kept: the backward runs it again (Chen et al. 2016). "
        "Gradients are "
        "equal bit for bit, random numbers included.");
  m.def("grad", python_grad, "outputs"_a, "inputs"_a, "grad_outputs"_a = nb::none(), "retain_graph"_a = false,
        "allow_unused"_a = false, "create_graph"_a = false,
        "The gradients of inputs, as a tuple; .grad of no tensor is touched.");
  nb::class_<HookHandle>(m, "HookHandle", "What register_hook() gives.")
      .def("remove", &HookHandle::remove, "The hook is called no more.");
  nb::class_<Offload>(m, "Offload", "What tally.autograd.offload_saved turns.")
      .def(nb::init<int64_t>(), "least_bytes"_a = 0)
      .def("enter", &Offload::enter, "What is saved from now on waits in host memory.")
      .def("leave", &Offload::leave, "No longer.");
  nb::class_<GradFn>(m, "GradFn", "A recorded op: what a backward will run.")
      .def("name", &GradFn::name, "The op's name.")
      .def_prop_ro("next_functions", &GradFn::next, "Those its gradients flow to; None for what needs none.")
      .def("__repr__", [](const GradFn& f) { return fmt::format("<{} backward>", f.name()); });
  c.def(
       "backward",
       [](const Tensor& loss, const Tensor* gradient, bool retain_graph, bool create_graph) {
         backward(loss, or_none(gradient), retain_graph, create_graph);
       },
       Release(), "gradient"_a = nb::none(), "retain_graph"_a = false, "create_graph"_a = false,
       "Runs the tape: adds d(this)/d(leaf) to .grad of every leaf that requires it. A tensor of more than one element "
       "needs a gradient of its shape. RuntimeError when nothing requires a gradient, when the tape ran already, or "
       "when a "
       "tensor that it saved was changed in place.")
      .def("detach", &Tensor::detach, "The same storage without history.")
      .def(
          "retain_grad", [](Tensor& x) { x.retain_grad(); }, "backward() then keeps .grad of this tensor too.")
      .def_prop_ro("retains_grad", &Tensor::retains_grad, "Whether retain_grad() was called.")
      .def_prop_ro("_version", &Tensor::version, "How often the storage was changed in place.")
      .def_prop_ro(
          "grad_fn", [](const Tensor& x) { return x.is_leaf() ? std::optional<GradFn>() : GradFn{x.node()}; },
          "The recorded op that made this tensor; None of a leaf.")
      .def("register_hook", hook, "hook"_a,
           "Calls hook(gradient) in backward() once the gradient of this tensor is complete; a tensor that it returns "
           "takes its "
           "place.")
      .def("register_post_accumulate_grad_hook", accumulate_hook, "hook"_a,
           "Calls hook(leaf) after a backward has added to its .grad.");
}

}  // namespace tally::py
