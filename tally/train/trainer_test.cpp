#include "tally/train/trainer.h"

#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>

#include "tally/base/parallel.h"
#include "tally/core/tape.h"
#include "tally/ops/elementwise.h"
#include "tally/train/sample.h"
#include "tally/train/train_test_data.h"
#include "tally/train/train_test_disk.h"

namespace tally {
namespace {

using test::expect_error;
using test::FileSizeLimit;
using test::make_data;
using test::quiet_run;
using test::small_config;
using test::TempFolder;

std::string weights_of(const fs::path& run, int64_t step) {
  const fs::path folder = run / "checkpoints" / checkpoint_name(step);
  return read_file(folder / "model.safetensors") + read_file(folder / "optimizer.safetensors");
}

// metrics.jsonl without what depends on the clock.
std::string timeless_metrics(const fs::path& run) {
  std::string kept;
  const std::string text = read_file(run / "metrics.jsonl");
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    Json line = Json::parse(text.substr(at, end - at), "metrics");
    if (line.find("tokens_per_second") != nullptr) line.set("tokens_per_second", 0);
    kept += line.dump() + "\n";
    at = end + 1;
  }
  return kept;
}

void run_to(RunConfig config, const fs::path& out, int64_t stop_at, bool resume) {
  // A signal raised while a batch is read cannot be timed, so the run is cut where its number of steps ends; the
  // schedule is constant and does not see that number.
  config.train.steps = stop_at;
  Trainer trainer(config, quiet_run(out, resume));
  EXPECT_TRUE(trainer.run());
}

TEST(Trainer, WritesTheRunDirectory) {
  TempFolder folder;
  make_data(folder / "data");
  const RunConfig config = small_config(folder / "data");
  Trainer trainer(config, quiet_run(folder / "run"));
  ASSERT_TRUE(trainer.run());
  for (const char* name : {"config.json", "metrics.jsonl", "ledger.json", "latest", "best",
                           "tokenizer/tokenizer_config.json", "checkpoints/step_00000012/model.safetensors"})
    EXPECT_TRUE(fs::exists(folder / "run" / name)) << name;
  EXPECT_EQ(read_file(folder / "run/latest"), "step_00000012\n");
  const std::string metrics = read_file(folder / "run/metrics.jsonl");
  std::vector<int64_t> steps;
  for (size_t at = 0; at < metrics.size(); at = metrics.find('\n', at) + 1)
    steps.push_back(Json::parse(metrics.substr(at, metrics.find('\n', at) - at), "m").at("step").as_int());
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 3, 4, 6, 8, 9, 12, 12, 12}));
  RunConfig back = read_run_config(folder / "run");
  EXPECT_EQ(back.to_json(), config.to_json());
  const LoadedModel loaded = load_run_model(folder / "run");
  EXPECT_EQ(loaded.step, 12);
  EXPECT_EQ(loaded.model->params()[0].tensor->to_vector(), trainer.state().params[0].tensor->to_vector());
  EXPECT_EQ(load_run_model(folder / "run/checkpoints/step_00000008/").step, 8);
}

TEST(Trainer, MeasuredEqualsPlannedInLedgerJson) {
  TempFolder folder;
  make_data(folder / "data");
  for (const int64_t accumulate : {1, 3}) {
    RunConfig config = small_config(folder / "data");
    config.train.accumulate = accumulate, config.train.sample_every = 5, config.model.dropout = 0.1;
    const fs::path out = folder / ("run" + std::to_string(accumulate));
    Trainer trainer(config, quiet_run(out));
    trainer.run();
    const Json ledger = Json::parse(read_file(out / "ledger.json"), "ledger.json");
    for (const char* part : {"peak_bytes", "eval_peak_bytes", "step"})
      for (const auto& [key, value] : ledger.at("difference").at(part).as_object())
        EXPECT_EQ(value.as_int(), 0) << part << " " << key;
    EXPECT_GT(ledger.at("measured").at("peak_bytes").at("total").as_int(), 0);
    EXPECT_GT(ledger.at("measured").at("step").at("matmul FLOPs").as_int(), 0);
    EXPECT_EQ(ledger.at("measured").at("steps").as_int(), 12);
    const std::string table = ledger_table(trainer.plan(), trainer.measured());
    for (const char* part : {"plan", "measured", "difference", "activation", "total", "matmul FLOPs"})
      EXPECT_NE(table.find(part), std::string::npos) << table;
  }
}

TEST(Trainer, ResumeIsBitEqualToTheUninterruptedRun) {
  TempFolder folder;
  make_data(folder / "data");
  RunConfig config = small_config(folder / "data");
  config.schedule.kind = "constant", config.schedule.warmup = 3, config.model.dropout = 0.1;
  config.train.accumulate = 2, config.train.sample_every = 6, config.train.eval_every = 2, config.train.log_every = 1;
  run_to(config, folder / "whole", 12, false);
  for (const int64_t stop : {4, 8, 10}) {
    const fs::path out = folder / ("part" + std::to_string(stop));
    run_to(config, out, stop, false);
    std::ofstream(out / "metrics.jsonl", std::ios::app) << "{\"step\":11,\"loss\":1}\n{\"ste";  // of a killed process
    run_to(config, out, 12, true);
    EXPECT_EQ(weights_of(out, 12), weights_of(folder / "whole", 12)) << stop;
    EXPECT_EQ(timeless_metrics(out), timeless_metrics(folder / "whole")) << stop;
    EXPECT_EQ(read_file(out / "best"), read_file(folder / "whole/best"));
    EXPECT_EQ(read_file(out / "config.json"), read_file(folder / "whole/config.json"));
  }
}

// Every order, over ends of epochs inside batches, resumed at every step.
TEST(Trainer, ResumeIsBitEqualInEveryOrder) {
  TempFolder folder;
  make_data(folder / "data", TokenizerKind::kByte, 700);
  for (const char* order : {"random", "shuffle", "sequential"}) {
    RunConfig config = small_config(folder / "data");
    config.data.order = order, config.train.checkpoint_every = config.train.eval_every = 0;
    config.train.accumulate = 2, config.train.log_every = 1, config.train.sample_tokens = 0,
    config.schedule.kind = "constant";
    const fs::path whole = folder / ("whole " + std::string(order)), part = folder / ("part " + std::string(order));
    run_to(config, whole, 12, false);
    run_to(config, part, 1, false);
    for (const int64_t step : {2, 3, 4, 5, 6, 7, 12}) run_to(config, part, step, true);
    EXPECT_EQ(weights_of(part, 12), weights_of(whole, 12)) << order;
    // 630 tokens for training: 12 steps of 2 x 3 windows of 16 are more than one epoch.
    const std::string metrics = read_file(whole / "metrics.jsonl");
    const std::string last = metrics.substr(metrics.rfind("\"epoch\":") + 8);
    EXPECT_NEAR(std::atof(last.c_str()),
                72 / (std::string(order) == "random" ? 630 / 16.0
                      : order[1] == 'h'              ? 38
                                                     : 39),
                1e-9);
  }
  EXPECT_NE(weights_of(folder / "whole shuffle", 12), weights_of(folder / "whole random", 12));
  EXPECT_NE(weights_of(folder / "whole shuffle", 12), weights_of(folder / "whole sequential", 12));
}

TEST(Trainer, EvaluationIsOnTheSameWindowsEveryTime) {
  TempFolder folder;
  make_data(folder / "data");
  for (const int64_t batches : {0, 3}) {
    RunConfig config = small_config(folder / "data");
    config.optim.lr = 0, config.train.eval_every = 2, config.train.eval_batches = batches;  // the model stays as it is
    const fs::path out = folder / ("run" + std::to_string(batches));
    run_to(config, out, 6, false);
    run_to(config, out, 12, true);
    std::vector<double> losses;
    const std::string text = read_file(out / "metrics.jsonl");
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
      const Json line = Json::parse(text.substr(at, text.find('\n', at) - at), "metrics");
      if (const Json* loss = line.find("val_loss")) losses.push_back(loss->as_double());
    }
    ASSERT_EQ(losses.size(), 6u);
    for (const double loss : losses) EXPECT_EQ(loss, losses[0]);
  }
}

TEST(Trainer, ResumeFromAnEarlierCheckpointWhenTheNewestIsTorn) {
  TempFolder folder;
  make_data(folder / "data");
  const RunConfig config = small_config(folder / "data");
  {
    Trainer whole(config, quiet_run(folder / "run"));
    whole.run();
  }
  const std::string before = weights_of(folder / "run", 12);
  fs::resize_file(folder / "run/checkpoints/step_00000012/model.safetensors", 100);
  expect_error([&] { Trainer(config, quiet_run(folder / "run", true)); },
               "the newest complete checkpoint before it is");
  TrainerOptions options = quiet_run(folder / "run", true);
  options.resume_from = folder / "run/checkpoints/step_00000008";
  Trainer again(config, options);
  EXPECT_EQ(read_file(folder / "run/latest"), "step_00000008\n");
  EXPECT_TRUE(again.run());
  EXPECT_EQ(weights_of(folder / "run", 12), before);
  EXPECT_EQ(read_file(folder / "run/latest"), "step_00000012\n");
}

TEST(Trainer, SameBitsOnOneAndTwoThreads) {
  TempFolder folder;
  make_data(folder / "data");
  RunConfig config = small_config(folder / "data");
  config.model = preset("tiny");
  const int threads = num_threads();
  for (const int n : {1, 2}) {
    set_num_threads(n);
    run_to(config, folder / ("run" + std::to_string(n)), 12, false);
  }
  set_num_threads(threads);
  EXPECT_EQ(weights_of(folder / "run1", 12), weights_of(folder / "run2", 12));
  EXPECT_EQ(timeless_metrics(folder / "run1"), timeless_metrics(folder / "run2"));
}

TEST(Trainer, RerunGivesTheSameBitsAndAnotherSeedOthers) {
  TempFolder folder;
  make_data(folder / "data");
  RunConfig config = small_config(folder / "data");
  run_to(config, folder / "a", 12, false);
  run_to(config, folder / "b", 12, false);
  config.train.seed = 2;
  run_to(config, folder / "c", 12, false);
  EXPECT_EQ(weights_of(folder / "a", 12), weights_of(folder / "b", 12));
  EXPECT_NE(weights_of(folder / "a", 12), weights_of(folder / "c", 12));
}

TEST(Trainer, TerminationSavesAndSaysHowFar) {
  TempFolder folder;
  make_data(folder / "data");
  RunConfig config = small_config(folder / "data");
  config.train.steps = 1000000, config.train.checkpoint_every = 0, config.train.eval_every = 0;
  int64_t stopped_at = 0;
  {
    Trainer trainer(config, quiet_run(folder / "run"));
    // The run installs its handlers at once; the alarm's handler then sends SIGTERM in the middle of it.
    std::signal(SIGALRM, [](int) { std::raise(SIGTERM); });
    alarm(1);
    EXPECT_FALSE(trainer.run());
    stopped_at = trainer.state().step;
  }
  EXPECT_GT(stopped_at, 0);
  EXPECT_EQ(load_run_model(folder / "run").step, stopped_at);
  EXPECT_EQ(read_file(folder / "run/latest"), checkpoint_name(stopped_at) + "\n");
}

TEST(Trainer, ValidationLossAndBitsPerByte) {
  TempFolder folder;
  make_data(folder / "data", TokenizerKind::kChar);
  RunConfig config = small_config(folder / "data");
  config.model.vocab_size = read_data_info(folder / "data").vocab_size;
  config.train.eval_batches = 0;
  Trainer trainer(config, quiet_run(folder / "run"));
  const EvalResult first = trainer.evaluate(), again = trainer.evaluate();
  EXPECT_EQ(first.loss, again.loss);
  EXPECT_NEAR(first.loss, std::log(static_cast<double>(config.model.vocab_size)), 0.1);
  EXPECT_NEAR(first.bits_per_byte, first.loss / std::log(2.0), 1e-12);  // ASCII: a token is a byte
  // By hand: the mean over all windows, one by one.
  const RunData data(config.data.dir, config.model.vocab_size);
  const ValidationWindows windows(data.val.size(), 1, config.context());
  RunConfig single = config;
  single.train.batch = 1;
  TrainState state(single, kCpu);
  double sum = 0;
  for (int64_t i = 0; i < windows.windows(); ++i) {
    windows.fill(data.val, i, state.ids.data<int32_t>(), state.targets.data<int32_t>());
    sum += evaluate_batch(state, 1);
  }
  EXPECT_NEAR(first.loss, sum / static_cast<double>(windows.windows()), 1e-5);
}

TEST(Trainer, LearnsTheTrainingText) {
  TempFolder folder;
  make_data(folder / "data");
  RunConfig config = small_config(folder / "data");
  config.train.steps = 150, config.train.eval_every = 150, config.optim.lr = 1e-2;
  Trainer trainer(config, quiet_run(folder / "run"));
  trainer.run();
  EXPECT_LT(trainer.best().loss, 2.2);  // log(256) = 5.5; the letters' own entropy is 2.9
}

TEST(Trainer, ARunThatDivergesStopsAndKeepsItsCheckpoint) {
  TempFolder folder;
  make_data(folder / "data");
  RunConfig config = small_config(folder / "data");
  run_to(config, folder / "run", 4, false);
  config.train.steps = 12;
  Trainer trainer(config, quiet_run(folder / "run", true));
  {
    NoGrad quiet;
    fill_(*trainer.state().params[0].tensor, INFINITY);
  }
  try {
    trainer.run();
    FAIL() << "no error";
  } catch (const RunError& e) {
    EXPECT_STREQ(e.what(), "step 5: the loss is not finite; first bad tensor: embed.weight");
  }
  EXPECT_EQ(load_run_model(folder / "run").step, 4);
}

// The disk is full at the first checkpoint and free again later: the run does not notice otherwise.
TEST(Trainer, GoesOnWhenACheckpointCannotBeWritten) {
  TempFolder folder;
  make_data(folder / "data");
  RunConfig config = small_config(folder / "data");
  config.train.log_every = 1, config.train.sample_tokens = 0;
  run_to(config, folder / "whole", 12, false);
  config.train.save_wait = 0;
  const fs::path out = folder / "run";
  {
    Trainer trainer(config, quiet_run(out));
    {
      const FileSizeLimit full(100);  // metrics.jsonl does not get its second line either
      EXPECT_THROW(trainer.run(), RunError);
    }
    EXPECT_EQ(trainer.state().step, 12);
    EXPECT_FALSE(fs::exists(out / "latest"));
    EXPECT_TRUE(trainer.run());  // what is left of the run is its last save
  }
  EXPECT_EQ(weights_of(out, 12), weights_of(folder / "whole", 12));
  EXPECT_EQ(timeless_metrics(out), timeless_metrics(folder / "whole"));
}

TEST(Trainer, DataThatGoesAwayEndsTheRunWithTheLastStepSaved) {
  TempFolder folder;
  make_data(folder / "data");
  RunConfig config = small_config(folder / "data");
  config.train.sample_tokens = 0, config.train.eval_every = 0, config.train.accumulate = 2;
  run_to(config, folder / "whole", 12, false);
  const std::string content = read_file(folder / "data/train_00000.tok");
  {
    Trainer trainer(config, quiet_run(folder / "run"));
    fs::resize_file(folder / "data/train_00000.tok", 300);
    expect_error([&] { trainer.run(); }, "train_00000.tok: ends at byte 300 now");
  }
  std::ofstream(folder / "data/train_00000.tok", std::ios::binary) << content;
  EXPECT_EQ(read_file(folder / "run/latest"), "step_00000000\n");
  run_to(config, folder / "run", 12, true);
  EXPECT_EQ(weights_of(folder / "run", 12), weights_of(folder / "whole", 12));
}

TEST(Trainer, TimeLimit) {
  TempFolder folder;
  make_data(folder / "data");
  RunConfig config = small_config(folder / "data");
  config.train.steps = 1'000'000, config.train.time_limit = "1.5s", config.train.checkpoint_every = 0;
  config.train.eval_every = 50;
  TrainerOptions options = quiet_run(folder / "run");
  {
    const SteadyTime start = options.start = steady_now();
    Trainer trainer(config, options);
    EXPECT_FALSE(trainer.run());
    EXPECT_TRUE(trainer.out_of_time());
    EXPECT_GT(trainer.state().step, 1);
    EXPECT_LT(seconds_since(start), 5);  // 1.5 but for what else runs here
    EXPECT_EQ(load_run_model(folder / "run").step, trainer.state().step);
  }
  options.resume = true, options.start = steady_now() - std::chrono::hours(1);
  const int64_t before = load_run_model(folder / "run").step;
  Trainer late(config, options);
  EXPECT_FALSE(late.run());
  EXPECT_EQ(late.state().step, before + 1);  // a step is made even then
}

TEST(Trainer, CheckpointsByMinutes) {
  TempFolder folder;
  make_data(folder / "data");
  RunConfig config = small_config(folder / "data");
  config.train.steps = 1'000'000, config.train.time_limit = "1.2s", config.train.checkpoint_every = 0;
  config.train.eval_every = 0, config.train.checkpoint_minutes = 0.2 / 60, config.train.keep_last = 100;
  Trainer trainer(config, quiet_run(folder / "run"));
  trainer.run();
  const auto steps = checkpoint_steps(folder / "run/checkpoints");
  EXPECT_GE(steps.size(), 2u);
  EXPECT_LE(steps.size(), 7u);
}

TEST(Trainer, RefusesWhatDoesNotFit) {
  TempFolder folder;
  make_data(folder / "data");
  make_data(folder / "chars", TokenizerKind::kChar);
  make_data(folder / "short", TokenizerKind::kByte, 150);
  RunConfig config = small_config(folder / "data");
  const auto start = [&](bool resume) { Trainer(config, quiet_run(folder / "run", resume)); };
  expect_error([&] { start(true); }, "holds no run to resume");
  config.model.vocab_size = 200;
  expect_error([&] { start(false); }, "model.vocab_size 200 is smaller than the 256 tokens");
  config = small_config(folder / "short");
  config.model.context = config.train.context = 64;
  expect_error([&] { start(false); }, "validation tokens do not fill a window of 64");
  config = small_config(folder / "nothing");
  expect_error([&] { start(false); }, "data.json");
  config = small_config(folder / "data");
  config.train.batch = 1 << 20, config.model.context = config.train.context = 1024, config.train.eval_every = 0;
  expect_error([&] { start(false); }, "this machine has");
  EXPECT_FALSE(fs::exists(folder / "run"));
  config = small_config(folder / "data");
  start(false);
  start(false);                              // a run that made no step left nothing to lose
  run_to(config, folder / "run", 12, true);  // and one that was killed before its first checkpoint begins anew
  expect_error([&] { start(false); }, "holds a run already");
  config.data.dir = (folder / "chars").string();
  expect_error([&] { start(true); }, "was trained with the tokenizer");
  config.data.dir = (folder / "data").string();
  config.model.n_layers = 3;
  expect_error([&] { start(true); }, "model.n_layers is 2 in the checkpoint and 3 here");
}

}  // namespace
}  // namespace tally
