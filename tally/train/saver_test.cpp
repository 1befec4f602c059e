// Saves that fail leave the earlier checkpoint, nothing of their own, and are tried again.
#include "tally/train/saver.h"

#include <cmath>
#include <fstream>
#include <thread>

#include "tally/train/train_test_data.h"
#include "tally/train/train_test_disk.h"

namespace tally {
namespace {

using test::FileSizeLimit;
using test::make_data;
using test::quiet_run;
using test::small_config;
using test::TempFolder;

struct Fixture {
  explicit Fixture(double minutes = 0, int64_t keep = 2)
      : config((make_data(folder / "data"), small_config(folder / "data"))),
        state(config, kCpu),
        run(folder / "run"),
        saver(run, keep, minutes) {
    run.begin(config, Tokenizer());
  }
  bool save(int64_t step, BestEval best = {}) {
    CheckpointState s;
    s.step = step, s.best = best, s.tokenizer_hash = Tokenizer().hash(), s.identity = identity_of(config);
    return saver.save(s, state.params, *state.optimizer);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run.checkpoints()))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  TempFolder folder;
  RunConfig config;
  TrainState state;
  RunFolder run;
  Saver saver;
};

TEST(Saver, AFailedSaveLeavesTheEarlierOne) {
  Fixture f;
  ASSERT_TRUE(f.save(4));
  const std::string before = read_file(f.run.checkpoints() / "step_00000004/model.safetensors");
  // At the first file, at the second, at the third, and at `latest`: the limit is on the size of a file.
  const auto model = fs::file_size(f.run.checkpoints() / "step_00000004/model.safetensors");
  for (const size_t limit : {size_t{0}, size_t{100}, static_cast<size_t>(model) - 1, static_cast<size_t>(model)}) {
    const FileSizeLimit full(limit);
    EXPECT_FALSE(f.save(8)) << limit;
    EXPECT_NE(f.saver.problem().find(limit < model ? "model.safetensors" : "optimizer.safetensors"), std::string::npos);
    EXPECT_EQ(f.names(), std::vector<std::string>{"step_00000004"});
    EXPECT_EQ(f.run.latest(), f.run.checkpoints() / "step_00000004");
    EXPECT_FALSE(f.save(4));  // the same step again
    EXPECT_EQ(read_file(f.run.checkpoints() / "step_00000004/model.safetensors"), before);
  }
  EXPECT_EQ(f.saver.failures(), 8);
  EXPECT_TRUE(f.save(8));
  EXPECT_EQ(f.saver.failures(), 0);
  EXPECT_EQ(f.names(), (std::vector<std::string>{"step_00000004", "step_00000008"}));
}

TEST(Saver, OldCheckpointsGoOnlyWhenTheNewOneIsComplete) {
  Fixture f(0, 1);
  ASSERT_TRUE(f.save(4));
  {
    const FileSizeLimit full(1000);
    EXPECT_FALSE(f.save(8));
  }
  EXPECT_EQ(f.names(), std::vector<std::string>{"step_00000004"});
  EXPECT_TRUE(f.save(12));
  EXPECT_EQ(f.names(), std::vector<std::string>{"step_00000012"});
}

TEST(Saver, TheBestThatIsSavedStaysWhenABetterOneCouldNotBe) {
  Fixture f(0, 1);
  ASSERT_TRUE(f.save(4, {4, 2.0}));
  {
    const FileSizeLimit full(1000);
    EXPECT_FALSE(f.save(8, {8, 1.0}));
  }
  ASSERT_TRUE(f.save(12, {8, 1.0}));
  ASSERT_TRUE(f.save(16, {8, 1.0}));
  EXPECT_EQ(f.names(), (std::vector<std::string>{"step_00000004", "step_00000016"}));
  EXPECT_EQ(read_file(f.run.path() / "best"), "step_00000004\n");
}

TEST(Saver, RoomIsLookedAtBeforeAnythingIsWritten) {
  Fixture f;
  // A checkpoint of 2^40 parameters on meta has a size, and no disk here has the room.
  Tensor huge = Tensor::empty(Dims(1 << 20, 1 << 20), DType::kF32, kMetaCpu);
  f.state.params.push_back({"huge", &huge});
  EXPECT_GT(checkpoint_bytes(f.state.params, *f.state.optimizer), int64_t{1} << 42);
  EXPECT_FALSE(f.save(4));
  EXPECT_NE(f.saver.problem().find("of space left on the disk, a checkpoint needs 4."), std::string::npos)
      << f.saver.problem();
  EXPECT_FALSE(fs::exists(f.run.checkpoints()));
}

TEST(Saver, ACheckpointTakesLessThanIsAskedFor) {
  Fixture f;
  ASSERT_TRUE(f.save(4));
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(f.run.checkpoints() / "step_00000004"))
    bytes += static_cast<int64_t>(entry.file_size());
  EXPECT_LT(bytes, checkpoint_bytes(f.state.params, *f.state.optimizer));
}

TEST(Saver, WaitsLongerAfterEachFailure) {
  Fixture f;
  EXPECT_FALSE(f.saver.due());
  const FileSizeLimit full(10);
  std::vector<double> waits;
  for (int i = 0; i < 9; ++i) {
    f.save(4);
    EXPECT_FALSE(f.saver.due());
    waits.push_back(std::ceil(f.saver.wait_seconds()));
  }
  EXPECT_EQ(waits, (std::vector<double>{1, 2, 4, 8, 16, 32, 60, 60, 60}));
}

TEST(Saver, MinutesBetweenSaves) {
  Fixture f(0.1 / 60);
  EXPECT_TRUE(f.save(1));
  EXPECT_FALSE(f.saver.due());
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  EXPECT_TRUE(f.saver.due());
  EXPECT_TRUE(f.save(2));
  EXPECT_FALSE(f.saver.due());
}

}  // namespace
}  // namespace tally
