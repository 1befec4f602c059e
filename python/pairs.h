// Values with their places, as Python's named tuple (values, indices).
#pragma once

#include "python/bind.h"
#include "tally/ops/reduce.h"

namespace nanobind::detail {

template <>
struct type_caster<tally::ValuesIndices> {
  NB_TYPE_CASTER(tally::ValuesIndices, const_name("tuple[Tensor, Tensor]"))
  bool from_python(handle, uint32_t, cleanup_list*) noexcept { return false; }
  static handle from_cpp(const tally::ValuesIndices& r, rv_policy, cleanup_list*) noexcept {
    const object values = cast(r.values), indices = cast(r.indices);
    return PyObject_CallFunctionObjArgs(tally::py::values_indices_type, values.ptr(), indices.ptr(), nullptr);
  }
};

}  // namespace nanobind::detail
