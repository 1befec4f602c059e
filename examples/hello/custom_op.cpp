// An op of one's own with its own backward, x^3, checked against differences. What is a kernel's business stays in the
// library; a function like this one is put together from its ops, and its backward is written by hand.
#include "tally/tally.h"
using namespace tally;

struct Cube {
  std::vector<Tensor> forward(FunctionContext& context, const std::vector<Tensor>& x) {
    context.save({x[0]});
    return {mul(mul(x[0], x[0]), x[0])};
  }
  std::vector<Tensor> backward(FunctionContext& context, const std::vector<Tensor>& gradients) {
    const Tensor& x = context.saved()[0];
    return {mul(mul(mul(x, x), 3.0), gradients[0])};
  }
};

Tensor cube(const Tensor& x) { return apply(Cube{}, {x}, "cube")[0]; }

int main() {
  Tensor x = Tensor::from(std::vector<double>{-1.5, 0.25, 2.0}, Dims(3)).set_requires_grad();
  backward(sum(cube(x)));
  for (int i = 0; i < 3; ++i) {
    const double at = x.to_vector()[i], step = 1e-5;
    const auto f = [](double v) { return cube(Tensor::from(std::vector<double>{v}, Dims(1))).item(); };
    const double difference = (f(at + step) - f(at - step)) / (2 * step), gradient = x.grad().to_vector()[i];
    std::printf("x %5.2f  x^3 %7.4f  gradient %7.4f  difference %7.4f\n", at, f(at), gradient, difference);
    if (std::abs(gradient - difference) > 1e-6) return 1;
  }
  std::puts("custom op: gradients agree");
}
