#include <cuda_runtime_api.h>

#include "tally/core/device.h"
#include "tally/core/replay.h"

namespace tally::detail {

namespace {
cudaStream_t stream_of(int device) { return static_cast<cudaStream_t>(device_stream(device)); }
}  // namespace

// Relaxed: memory may be taken from the driver meanwhile.
void graph_begin(int device) {
  check_cuda("cudaStreamBeginCapture", cudaStreamBeginCapture(stream_of(device), cudaStreamCaptureModeRelaxed));
}

void* graph_end(int device, bool keep) {
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream_of(device), &graph);
  if (!keep) {
    cudaGetLastError();
    if (graph != nullptr) cudaGraphDestroy(graph);
    return nullptr;
  }
  check_cuda("cudaStreamEndCapture", ended);
  cudaGraphExec_t ready = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&ready, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda("cudaGraphInstantiate", made);
  return ready;
}

void graph_launch(int device, void* graph) {
  check_cuda("cudaGraphLaunch", cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(device)));
}

void graph_drop(void* graph) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); }

}  // namespace tally::detail
