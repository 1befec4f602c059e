// Cycles through tensors, for Python's collector: tensor -> recorded op -> hook or user's function -> closure ->
// tensor.
//
// The collector must be told each reference that it may follow once per count, and the references between a tensor and
// its recorded op, and between ops, are C++'s. So a tensor shows what a node holds only where it alone owns the node:
// the counts that are met on the way from the tensor are all that the node has. What something else owns too (a graph
// that two tensors hold, an optimizer of C++) is left out: it is freed when that is gone.
//
// That answer must be the same throughout one collection. Counts of nodes change outside Python's lock, but only on
// threads that a call of this module has let run without it, which Unlocked counts under the lock: while there is one,
// nothing is shown. Source: CPython's Objects/object_layout and Modules/gcmodule.c; nanobind's "Reference leaks".
#include <unordered_map>
#include <vector>

#include "python/bind.h"
#include "tally/core/tape.h"

namespace tally::py {

struct Held::Object {
  nb::object object;
  std::vector<const Node*> nodes;
};

namespace {

constexpr size_t kMostNodes = 4096;  // met from one tensor: a collection must not take long because of a long graph

// What objects of Python the nodes keep. Changed and read under Python's lock.
using Kept = std::unordered_multimap<const Node*, PyObject*>;
Kept& kept() {
  static auto* all = new Kept;  // tensors may outlive what is destroyed at exit
  return *all;
}

void forget(const Node* node, PyObject* object) {
  const auto [begin, end] = kept().equal_range(node);
  for (auto at = begin; at != end; ++at)
    if (at->second == object) {
      kept().erase(at);
      return;
    }
}

int visit_graph(Node* root, visitproc visit, void* arg) {
  std::unordered_map<const Node*, int> met;
  std::vector<Node*> owned;
  const auto meet = [&](Node* node) {
    if (++met[node] == node->references.load(std::memory_order_relaxed)) owned.push_back(node);
  };
  meet(root);
  while (!owned.empty() && met.size() < kMostNodes) {
    Node* const node = owned.back();
    owned.pop_back();
    const auto [begin, end] = kept().equal_range(node);
    for (auto at = begin; at != end; ++at) Py_VISIT(at->second);
    for (size_t i = 0; i < node->input_count(); ++i)
      if (const Ref<Node>& input = node->input(i)) meet(input.get());
  }
  return 0;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (Unlocked::threads > 0 || kept().empty() || !nb::inst_ready(self)) return 0;
  Node* const node = nb::inst_ptr<Tensor>(self)->node().get();
  return node ? visit_graph(node, visit, arg) : 0;
}

// The tensor stays one, without history: what runs during a collection may still look at it.
int clear(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  Tensor& x = *nb::inst_ptr<Tensor>(self);
  const Tensor whole = x;  // whose node goes at the end
  x = x.detach();
  return 0;
}

PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {Py_tp_clear, reinterpret_cast<void*>(clear)}, {0, nullptr}};

}  // namespace

Held::Held(nb::object object)
    : object_(new Object{std::move(object), {}}, [](Object* o) {
        nb::gil_scoped_acquire lock;
        if (!lock.is_valid()) return;  // while the interpreter ends
        for (const Node* node : o->nodes) forget(node, o->object.ptr());
        delete o;
      }) {}

nb::handle Held::get() const { return object_->object; }

void Held::keep_in(const Node* node) const {
  for (const Node* n : object_->nodes)
    if (n == node) return;
  object_->nodes.push_back(node);
  kept().emplace(node, object_->object.ptr());
}

PyType_Slot* tensor_slots() { return slots; }

}  // namespace tally::py
