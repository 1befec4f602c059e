// The Python module tally._C, which the package tally (python/tally) shows. Names are PyTorch's. Every call into a
// kernel releases the GIL; errors become RuntimeError, ValueError, IndexError or TypeError by their kind.
#include "python/bind.h"

namespace tally::py {

void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      PyObject* kinds[] = {PyExc_RuntimeError, PyExc_ValueError, PyExc_IndexError, PyExc_TypeError};
      PyErr_SetString(kinds[static_cast<int>(e.kind)], e.what());
    } catch (const std::bad_alloc&) {
      PyErr_SetString(PyExc_MemoryError, "no memory");
    } catch (const std::logic_error& e) {  // an assertion of ours
      PyErr_SetString(PyExc_RuntimeError, e.what());
    }
  });
}

}  // namespace tally::py

NB_MODULE(_C, m) {
  using namespace tally::py;
  nb::set_leak_warnings(false);  // the objects of dtypes and Size live as long as the process
  m.doc() = "Tally's tensors, ops, tokenizers and training, as the package tally shows them.";
  size_type = nb::object(nb::module_::import_("tally._size").attr("Size")).release().ptr();
  values_indices_type = nb::object(nb::module_::import_("tally._size").attr("ValuesIndices")).release().ptr();
  m.attr("Size") = nb::handle(size_type);
  bind_errors(m);
  bind_types(m);
  TensorClass tensor(m, "Tensor",
                     "Numbers of one dtype in up to six axes: a storage and a view of it (sizes, strides, offset).\n"
                     "Names and meaning are PyTorch's. Views share the storage.",
                     nb::type_slots(tensor_slots()), nb::is_weak_referenceable());
  Ops ops(m, tensor);
  bind_tensor(m, tensor);
  bind_values(m, tensor);
  bind_create(m, tensor);
  bind_new(m, tensor);
  bind_dlpack(m, tensor);
  bind_index(m, tensor);
  bind_operators(m, tensor);
  bind_ops(ops);
  bind_arrange(ops);
  bind_reduce(ops);
  bind_views(ops);
  bind_nn(ops);
  bind_conv(ops);
  bind_einops(m);
  bind_autograd(m, tensor);
  bind_device(m);
  bind_ledger(m);
  bind_quantize(m);
  bind_io(m);
  bind_text(m);
  bind_train(m);
}
