// Python's operators on tensors and numbers. They are the hottest calls of the module, so each is one overload whose
// second operand is a tensor or a number.
#include "python/bind.h"
#include "python/operand.h"
#include "tally/ops/compare.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/matmul.h"

namespace tally::py {
namespace {

using Pair = Tensor (*)(const Operand&, const Operand&);

// __add__ and __radd__ and their like. What is neither tensor nor number is Python's to ask next.
template <Pair F>
void pair(TensorClass& c, const char* name, const char* reverse) {
  c.def(
      name, [](const Tensor& a, const OperandArg& b) { return F(a, b.get()); }, Release(), nb::is_operator());
  if (reverse)
    c.def(
        reverse, [](const Tensor& a, const OperandArg& b) { return F(b.get(), a); }, Release(), nb::is_operator());
}

// __iadd__ and its like: the same Python object again.
template <class F>
void in_place(TensorClass& c, const char* name, F f) {
  c.def(
      name,
      [f](nb::handle_t<Tensor> self, const OperandArg& b) -> Self {
        Tensor& x = nb::cast<Tensor&>(self);
        {
          const Unlocked free;
          f(x, b.get());
        }
        return nb::borrow(self);
      },
      nb::is_operator());
}

Tensor plus(const Operand& a, const Operand& b) { return add(a, b); }
Tensor minus(const Operand& a, const Operand& b) { return sub(a, b); }
Tensor over(const Operand& a, const Operand& b) { return div(a, b); }
Tensor times(const Operand& a, const Operand& b) { return mul(a, b); }

}  // namespace

void bind_operators(nb::module_&, TensorClass& c) {
  // Two tensors are the usual case.
  c.def(
      "__add__",
      [](const Tensor& a, const OperandArg& b) { return b.tensor() ? add(a, *b.tensor()) : add(Operand(a), b.get()); },
      Release(), nb::is_operator());
  c.def(
      "__mul__",
      [](const Tensor& a, const OperandArg& b) { return b.tensor() ? mul(a, *b.tensor()) : mul(Operand(a), b.get()); },
      Release(), nb::is_operator());
  c.def(
      "__radd__", [](const Tensor& a, const OperandArg& b) { return plus(b.get(), a); }, Release(), nb::is_operator());
  c.def(
      "__rmul__", [](const Tensor& a, const OperandArg& b) { return times(b.get(), a); }, Release(), nb::is_operator());
  pair<minus>(c, "__sub__", "__rsub__");
  pair<over>(c, "__truediv__", "__rtruediv__");
  pair<floor_divide>(c, "__floordiv__", "__rfloordiv__");
  pair<remainder>(c, "__mod__", "__rmod__");
  pair<pow>(c, "__pow__", "__rpow__");
  pair<bitwise_and>(c, "__and__", "__rand__");
  pair<bitwise_or>(c, "__or__", "__ror__");
  pair<bitwise_xor>(c, "__xor__", "__rxor__");
  pair<bitwise_left_shift>(c, "__lshift__", "__rlshift__");
  pair<bitwise_right_shift>(c, "__rshift__", "__rrshift__");
  pair<eq>(c, "__eq__", nullptr), pair<ne>(c, "__ne__", nullptr);
  pair<lt>(c, "__lt__", nullptr), pair<le>(c, "__le__", nullptr);
  pair<gt>(c, "__gt__", nullptr), pair<ge>(c, "__ge__", nullptr);
  c.def(
      "__matmul__", [](const Tensor& a, const Tensor& b) { return matmul(a, b); }, Release(), nb::is_operator());
  const auto with_array = [](const Tensor& a, nb::handle b, bool reverse) -> nb::object {
    std::optional<Tensor> y;
    if (!array_from_python(b.ptr(), y)) return nb::borrow(Py_NotImplemented);
    return nb::cast(reverse ? matmul(*y, a) : matmul(a, *y));
  };
  c.def(
      "__matmul__", [=](const Tensor& a, nb::handle b) { return with_array(a, b, false); }, nb::is_operator());
  c.def(
      "__rmatmul__", [=](const Tensor& a, nb::handle b) { return with_array(a, b, true); }, nb::is_operator());
  c.def(
      "__neg__", [](const Tensor& x) { return neg(x); }, Release());
  c.def(
      "__abs__", [](const Tensor& x) { return tally::abs(x); }, Release());
  c.def(
      "__invert__", [](const Tensor& x) { return bitwise_not(x); }, Release());
  c.def("__pos__", [](nb::handle_t<Tensor> x) -> Self { return nb::borrow(x); });
  in_place(c, "__iadd__", [](Tensor& x, const Operand& y) { add_(x, y); });
  in_place(c, "__isub__", [](Tensor& x, const Operand& y) { sub_(x, y); });
  in_place(c, "__imul__", [](Tensor& x, const Operand& y) { mul_(x, y); });
  in_place(c, "__itruediv__", [](Tensor& x, const Operand& y) { div_(x, y); });
  in_place(c, "__ifloordiv__", [](Tensor& x, const Operand& y) { floor_divide_(x, y); });
  in_place(c, "__imod__", [](Tensor& x, const Operand& y) { remainder_(x, y); });
  in_place(c, "__ipow__", [](Tensor& x, const Operand& y) { pow_(x, y); });
  in_place(c, "__iand__", [](Tensor& x, const Operand& y) { bitwise_and_(x, y); });
  in_place(c, "__ior__", [](Tensor& x, const Operand& y) { bitwise_or_(x, y); });
  in_place(c, "__ixor__", [](Tensor& x, const Operand& y) { bitwise_xor_(x, y); });
}

}  // namespace tally::py
