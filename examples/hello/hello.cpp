// The ten lines of README.md: a tiny model learns one sentence, here with what it then says.
#include "tally/tally.h"
using namespace tally;

int main() {
  auto model = make_model(preset("tiny"), /*seed=*/1);
  auto adamw = make_optimizer({}, model->params());
  const Tensor ids = Tensor::from(std::vector<int32_t>{72, 101, 108, 108, 111, 33}, Dims(1, 6));
  const Tensor next = Tensor::from(std::vector<int32_t>{101, 108, 108, 111, 33, 10}, Dims(1, 6));
  for (int step = 0; step < 100; ++step) {
    const Tensor loss = model->loss(ids, next);
    backward(loss);
    adamw->step(/*rate=*/1e-3, clip_scale(global_norm(model->params()), 1.0));
    clear_grads(model->params());
    if (step % 10 == 0) std::printf("%3d  %.4f\n", step, loss.item());
  }
  SamplerConfig greedy;
  greedy.temperature = 0;
  generate(*model, {72}, 6, greedy, [](int32_t id) { return std::putchar(id) != EOF; });
}
