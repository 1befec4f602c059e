#include <fstream>

#include "tally/train/run_folder.h"
#include "tally/train/train_test_data.h"

namespace tally {
namespace {

using test::expect_error;
using test::small_config;
using test::TempFolder;

CheckpointState state_at(int64_t step, const RunConfig& c) {
  CheckpointState s;
  s.step = s.optimizer_steps = step;
  s.data_position = step, s.seed = c.train.seed, s.train_tokens = 1000;
  s.tokenizer_hash = "abc";
  s.identity = identity_of(c);
  return s;
}

void set_parameters(TrainState& state, float value) {
  for (const Param& p : state.params) p.tensor->data<float>()[0] = value;
  for (const Param& p : state.optimizer->state()) p.tensor->data<float>()[0] = value;
}

double first_value(const TrainState& state) { return state.params[0].tensor->data<float>()[0]; }

struct Saved {
  TempFolder folder;
  RunConfig config = small_config("");
  TrainState state{config, kCpu};
  fs::path checkpoints = folder / "checkpoints";
  Saved() {
    for (const int64_t step : {10, 20}) {
      set_parameters(state, static_cast<float>(step));
      save_checkpoint(checkpoints, state_at(step, config), state.params, *state.optimizer);
    }
    set_parameters(state, 0);
  }
  CheckpointState load(const fs::path& path) { return load_checkpoint(path, config, "abc", 1000, state); }
};

TEST(Checkpoint, ComesBack) {
  Saved s;
  EXPECT_EQ(checkpoint_steps(s.checkpoints), (std::vector<int64_t>{10, 20}));
  const CheckpointState loaded = s.load(s.checkpoints / "step_00000020");
  EXPECT_EQ(loaded.step, 20);
  EXPECT_EQ(loaded.data_position, 20);
  EXPECT_EQ(s.state.step, 20);
  EXPECT_EQ(s.state.optimizer->steps(), 20);
  EXPECT_EQ(first_value(s.state), 20);
  EXPECT_EQ(s.state.optimizer->state()[1].tensor->data<float>()[0], 20);
  EXPECT_EQ(fs::file_size(s.checkpoints / "step_00000020" / "state.json"), kStateBytes);
}

TEST(Checkpoint, O18TruncatedFilesNameTheMissingBytesAndTheEarlierCheckpoint) {
  Saved s;
  const fs::path torn = s.checkpoints / "step_00000020";
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::string whole = read_file(torn / name);
    const size_t n = whole.size();
    for (const size_t cut : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, n / 2, n - 1}) {
      std::ofstream(torn / name, std::ios::binary) << whole.substr(0, cut);
      expect_error([&] { s.load(torn); }, fmt::format("step_00000020/{}: {} bytes are missing", name, n - cut));
      expect_error([&] { s.load(torn); },
                   "the newest complete checkpoint before it is " + (s.checkpoints / "step_00000010").string());
      EXPECT_EQ(first_value(s.state), 0);
      EXPECT_EQ(newest_complete(s.checkpoints, 99), s.checkpoints / "step_00000010");
    }
    fs::remove(torn / name);
    expect_error([&] { s.load(torn); }, fmt::format("{}: is missing", name));
    std::ofstream(torn / name, std::ios::binary) << whole << "x";
    expect_error([&] { s.load(torn); }, "1 more than were written");
    std::ofstream(torn / name, std::ios::binary) << whole;
    EXPECT_EQ(s.load(torn).step, 20);
    set_parameters(s.state, 0);
  }
  EXPECT_EQ(s.load(s.checkpoints / "step_00000010").step, 10);
  EXPECT_EQ(first_value(s.state), 10);
}

TEST(Checkpoint, TornWithoutAnEarlierOne) {
  Saved s;
  fs::resize_file(s.checkpoints / "step_00000010" / "model.safetensors", 9);
  expect_error([&] { s.load(s.checkpoints / "step_00000010"); }, "there is no complete checkpoint before it");
}

TEST(Checkpoint, DamagedStateIsAnErrorWithItsName) {
  Saved s;
  const fs::path file = s.checkpoints / "step_00000010" / "state.json";
  const std::string whole = read_file(file);
  for (size_t at = 0; at<whole.size(); at += whole.size()> at + 40 && whole[at] == ' ' ? 97 : 3) {
    std::string bad = whole;
    bad[at] = '~';
    std::ofstream(file, std::ios::binary) << bad;
    try {
      read_checkpoint(file.parent_path());  // a change inside a string may go unseen; nothing worse may happen
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("step_00000010/"), std::string::npos) << e.what();
    }
  }
}

TEST(Checkpoint, OfAnotherModelNamesTheFirstDifference) {
  Saved s;
  const fs::path path = s.checkpoints / "step_00000020";
  RunConfig other = s.config;
  other.model.d_ff = 64;
  TrainState wide(other, kCpu);
  expect_error([&] { load_checkpoint(path, other, "abc", 1000, wide); },
               "model.d_ff is 48 in the checkpoint and 64 here");
  expect_error([&] { load_checkpoint(path, s.config, "xyz", 1000, s.state); }, "tokenizer abc");
  expect_error([&] { load_checkpoint(path, s.config, "abc", 999, s.state); }, "data of 1000 tokens");
}

TEST(Checkpoint, FailedSaveLeavesTheEarlierOneAndNoTemporary) {
  Saved s;
  const std::string before = read_file(s.checkpoints / "step_00000020" / "model.safetensors");
  set_parameters(s.state, 5);
  CheckpointState too_long = state_at(20, s.config);
  too_long.tokenizer_hash = std::string(2 * kStateBytes, 'x');  // state.json, written last, is refused
  expect_error([&] { save_checkpoint(s.checkpoints, too_long, s.state.params, *s.state.optimizer); }, "state.json");
  EXPECT_EQ(read_file(s.checkpoints / "step_00000020" / "model.safetensors"), before);
  int64_t entries = 0;
  for (const auto& entry : fs::directory_iterator(s.checkpoints)) entries += entry.exists();
  EXPECT_EQ(entries, 2);
}

TEST(Checkpoint, OneOfTheSameNameIsReplaced) {
  Saved s;
  set_parameters(s.state, 7);
  save_checkpoint(s.checkpoints, state_at(20, s.config), s.state.params, *s.state.optimizer);
  set_parameters(s.state, 0);
  s.load(s.checkpoints / "step_00000020");
  EXPECT_EQ(first_value(s.state), 7);
}

TEST(RunFolder, KeepsTheLastAndTheBest) {
  TempFolder folder;
  const RunConfig c = small_config("");
  TrainState state(c, kCpu);
  RunFolder run(folder / "run");
  run.begin(c, Tokenizer());
  for (int64_t step = 1; step <= 6; ++step) {
    CheckpointState s = state_at(step, c);
    s.best = {step < 2 ? step : 2, 1.0};
    run.save(s, state.params, *state.optimizer, 2);
    EXPECT_EQ(run.latest(), run.checkpoints() / checkpoint_name(step));
  }
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{2, 5, 6}));
  EXPECT_EQ(read_file(folder / "run/best"), "step_00000002\n");
  EXPECT_EQ(read_file(folder / "run/latest"), "step_00000006\n");
}

TEST(RunFolder, BeginRefusesAFolderWithARunOrWithOtherFiles) {
  TempFolder folder;
  const RunConfig c = small_config("");
  for (int i = 0; i < 2; ++i) RunFolder(folder / "run").begin(c, Tokenizer());  // no step was made: nothing to lose
  std::ofstream(folder / "run/metrics.jsonl") << "{\"step\":1}\n";
  expect_error([&] { RunFolder(folder / "run").begin(c, Tokenizer()); },
               "holds a run already; go on with it by --resume");
  fs::create_directory(folder / "other");
  std::ofstream(folder / "other/notes.txt") << "x";
  expect_error([&] { RunFolder(folder / "other").begin(c, Tokenizer()); }, "is not empty (notes.txt is in it)");
  EXPECT_EQ(read_file(folder / "other/notes.txt"), "x");
  expect_error([&] { RunFolder(folder / "other").reopen(); }, "holds no run to resume");
}

TEST(RunFolder, ReopenRemovesWhatAKilledRunLeft) {
  TempFolder folder;
  const fs::path run = folder / "run";
  { RunFolder(run).begin(small_config(""), Tokenizer()); }
  fs::create_directories(run / "checkpoints/.step_00000004.tmp");
  fs::create_directories(run / "checkpoints/.step_00000002.old");
  fs::create_directories(run / "checkpoints/step_00000002");
  std::ofstream(run / ".latest.tmp.12.0") << "x";
  RunFolder(run).reopen();
  EXPECT_FALSE(fs::exists(run / "checkpoints/.step_00000004.tmp"));
  EXPECT_FALSE(fs::exists(run / "checkpoints/.step_00000002.old"));
  EXPECT_FALSE(fs::exists(run / ".latest.tmp.12.0"));
  EXPECT_TRUE(fs::exists(run / "checkpoints/step_00000002"));
}

TEST(RunFolder, OneProcessAtATime) {
  TempFolder folder;
  RunFolder first(folder / "run");
  first.begin(small_config(""), Tokenizer());
  expect_error([&] { RunFolder(folder / "run").reopen(); }, "another process is training in this folder");
}

TEST(RunFolder, FindRunModelNamesWhatIsMissing) {
  TempFolder folder;
  expect_error([&] { find_run_model(folder / "none"); }, "no such folder");
  fs::create_directory(folder / "empty");
  expect_error([&] { find_run_model(folder / "empty"); }, "neither a run nor a checkpoint");
  { RunFolder(folder / "run").begin(small_config(""), Tokenizer()); }
  expect_error([&] { find_run_model(folder / "run"); }, "has no checkpoint yet");
  std::ofstream(folder / "run/latest") << "../../etc\n";
  expect_error([&] { find_run_model(folder / "run"); }, "does not name a checkpoint");
  std::ofstream(folder / "run/latest") << "step_00000007\n";
  expect_error([&] { find_run_model(folder / "run"); }, "step_00000007: the checkpoint");
}

}  // namespace
}  // namespace tally
